package fault

import (
	"fmt"
	"time"
)

// Why is the reason for which state may have been lost, as scripts/lib/incarnation.lua notes it. ""
// is none of these: what is there went back by itself.
type Why string

// Missing is the reason of what this Redis has no record of.
const Missing Why = "missing"

var reasons = map[Why]struct{ happened, avoid string }{
	Missing:    {"this Redis has no record of what was handed out before: it is new to it, or the record is gone", ""},
	"restored": {"`coatcheck store restored` was run", ""},
	"restarted": {"Redis was restarted, and does not show that it kept every confirmed write",
		"appendfsync always in Redis, with --restarts auto, and with --ack all where it has replicas, makes a restart cost nothing"},
	"promoted": {"another server became the master of Redis, and not every write was confirmed by all of its replicas",
		"--ack all in every process makes a failover cost nothing"},
	"moved": {"another node of the cluster has it now, and the one before cannot be asked, or it was promoted without --ack all",
		"--ack all in every process makes a failover and a moved slot cost nothing"},
	"other": {"Redis is not the server that it was", "--ack all and appendfsync always make a failover and a restart cost nothing"},
}

// Happened says what happened, and when that was noticed where it is known, such as "Redis was
// restarted, …, noticed at 12:01:05 UTC".
func (w Why) Happened(noticed time.Time) string {
	reason, known := reasons[w]
	if !known {
		return "the value in Redis went back by itself: it was set or removed there by hand, or restored from a copy"
	}
	if noticed.IsZero() {
		return reason.happened
	}
	return fmt.Sprintf("%s; noticed at %s", reason.happened, noticed.UTC().Format("15:04:05 UTC"))
}

// Avoid says which setting avoids it, with a separator before it; "" if none does.
func (w Why) Avoid() string {
	if avoid := reasons[w].avoid; avoid != "" {
		return ". " + avoid
	}
	return ""
}
