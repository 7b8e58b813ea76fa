package checks

import "context"

type askedKey struct{}

// WithAsked returns the context of a look that somebody asked for, because
// something elsewhere is suspicious. A kind may then look closer than a schedule
// would justify.
func WithAsked(ctx context.Context) context.Context { return context.WithValue(ctx, askedKey{}, true) }

// Asked reports whether the look was asked for.
func Asked(ctx context.Context) bool { return ctx.Value(askedKey{}) != nil }
