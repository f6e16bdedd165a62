package access

import (
	"errors"
	"fmt"
)

// Role is how much a caller may do. Each can do all that those below it can.
type Role int

// The roles. A caller with None may use only routes that are open to all.
const (
	None  Role = iota
	Read       // look: counters, tokens, rings, locks, metrics
	Use        // draw values and ids, lease, lock, issue and claim tokens
	Admin      // set and remove counters, declare pools, break locks
)

var roleNames = [...]string{None: "none", Read: "read", Use: "use", Admin: "admin"}

// String is the role's name, as it is written in files.
func (r Role) String() string {
	if r < None || r > Admin {
		return fmt.Sprintf("role %d", int(r))
	}
	return roleNames[r]
}

var errRole = errors.New("read, use or admin")

// ParseRole reads a role that a record can have: read, use or admin.
func ParseRole(text string) (Role, error) {
	for role := Read; role <= Admin; role++ {
		if roleNames[role] == text {
			return role, nil
		}
	}
	return None, errRole
}

// MarshalText implements encoding.TextMarshaler.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Role) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRole(string(text))
	return err
}
