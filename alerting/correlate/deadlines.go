package correlate

import "container/heap"

// deadlines is a heap of services by the time at which they next want to be
// looked at; ties go by name, so that the order of changes is fixed.
type deadlines struct{ heap serviceHeap }

func (d *deadlines) first() (*service, bool) {
	if len(d.heap) == 0 {
		return nil, false
	}
	return d.heap[0], true
}

// update puts s where its deadline belongs; a zero deadline takes it out.
func (d *deadlines) update(s *service) {
	switch {
	case s.deadline.IsZero() && s.index >= 0:
		heap.Remove(&d.heap, s.index)
	case s.deadline.IsZero():
	case s.index >= 0:
		heap.Fix(&d.heap, s.index)
	default:
		heap.Push(&d.heap, s)
	}
}

type serviceHeap []*service

func (h serviceHeap) Len() int { return len(h) }

func (h serviceHeap) Less(a, b int) bool {
	if !h[a].deadline.Equal(h[b].deadline) {
		return h[a].deadline.Before(h[b].deadline)
	}
	return h[a].policy.Name < h[b].policy.Name
}

func (h serviceHeap) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].index, h[b].index = a, b
}

func (h *serviceHeap) Push(x any) {
	s := x.(*service)
	s.index = len(*h)
	*h = append(*h, s)
}

func (h *serviceHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	*h, s.index = old[:len(old)-1], -1
	return s
}
