package schedule

// dueHeap orders jobs by their next slot.
type dueHeap []*job

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, k int) bool { return h[i].next.Before(h[k].next) }
func (h dueHeap) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }

// Push and Pop are for container/heap; jobs are never added or removed.
func (h *dueHeap) Push(x any) { *h = append(*h, x.(*job)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
