package lock

import (
	"slices"
	"strconv"
	"strings"
)

// CheckFence is for a resource that is kept in Redis: the Lua function check_fence(key, fence), to
// be put before a script that writes the resource. It reports whether a holder with that fence may
// write, and if so records the fence in the key. The key lies in the slot of the resource and is
// never deleted before it:
//
//	if not check_fence(KEYS[1], ARGV[1]) then return 'overtaken' end
//	redis.call('SET', KEYS[2], ARGV[2])
//
// A fence is below 2^53, so a Lua number holds it. Equal is allowed: one holder may write any
// number of times.
const CheckFence = `local function check_fence(key, fence)
  if tonumber(fence) < tonumber(redis.call('GET', key) or '0') then
    return false
  end
  redis.call('SET', key, fence)
  return true
end
`

// CheckFenceSQL is for a resource that is a row of an SQL table with a column fence, an integer of
// 64 bits that is 0 at first. It returns a statement that changes columns of the row with that key
// unless a later holder has written it; it takes their new values, the fence, the key, and the
// fence once more:
//
//	UPDATE account SET balance = ?, fence = ? WHERE id = ? AND fence <= ?
//
// No row changed means that the holder was overtaken, or that there is no such row. The names are
// written as they are: they must be the program's own.
func CheckFenceSQL(placeholder Placeholder, table, key string, columns ...string) string {
	last := 0
	next := func() string {
		last++
		if placeholder == PlaceholderDollar {
			return "$" + strconv.Itoa(last)
		}
		return "?"
	}
	set := make([]string, 0, len(columns)+1)
	for _, column := range append(slices.Clip(columns), "fence") {
		set = append(set, column+" = "+next())
	}
	return "UPDATE " + table + " SET " + strings.Join(set, ", ") + " WHERE " + key + " = " + next() + " AND fence <= " + next()
}

// Placeholder is how a database driver writes the parameters of a statement.
type Placeholder string

// The placeholders.
const (
	PlaceholderQuestion Placeholder = "?" // MySQL, MariaDB, SQLite
	PlaceholderDollar   Placeholder = "$" // $1, $2 …: PostgreSQL with pgx or lib/pq, SQLite
)
