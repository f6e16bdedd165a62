package access

import "context"

// Caller is who is asking, and what they may do.
type Caller struct {
	Principal string // "" for those who showed nothing
	Role      Role
	Names     Names  // that they may touch
	Limit     Limit  // how often they may ask; zero = as often as they like
	KeyID     string // of the key that was shown; "" = none was
}

// Unrestricted is the caller of every request where access is not controlled. It may do everything.
var Unrestricted = Caller{Role: Admin}

// May reports whether the caller has a role, or one above it.
func (c Caller) May(role Role) bool { return c.Role >= role }

type contextKey struct{}

// With puts a caller into a request's context.
func With(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, caller)
}

// From returns the caller in a request's context, or [Unrestricted] if there is none.
func From(ctx context.Context) Caller {
	if caller, ok := ctx.Value(contextKey{}).(Caller); ok {
		return caller
	}
	return Unrestricted
}
