package access

import "context"

// Caller is the sender of a request, and its rights.
type Caller struct {
	Principal string // "" for a caller without key or certificate
	Role      Role
	Names     Names  // that it may touch
	Limit     Limit  // how often it may ask; zero = no limit
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
