package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// Severity is how bad a finding is. The zero value is OK.
type Severity int

// The severities, the least first.
const (
	OK   Severity = iota // as it should be
	Note                 // worth knowing, or not to be seen
	// Warning means that a promise is weaker than it could be, or that a likely fault breaks it.
	Warning
	Critical // a promise is broken now, or by the next restart; or nothing works
)

var severities = []string{"ok", "note", "warning", "critical"}

// String is ok, note, warning or critical.
func (s Severity) String() string { return severities[s] }

// MarshalText writes what String says.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what String says.
func (s *Severity) UnmarshalText(text []byte) error {
	at := slices.Index(severities, string(text))
	if at < 0 {
		return fmt.Errorf("doctor: %q is not a severity: %s", text, strings.Join(severities, ", "))
	}
	*s = Severity(at)
	return nil
}

// Finding is one thing that was looked at and what it came to.
type Finding struct {
	ID       string   `json:"id"` // of the check
	Severity Severity `json:"severity"`
	Where    []string `json:"where,omitempty"` // the servers, host:port; none = the whole
	Found    string   `json:"found"`
	Risk     string   `json:"risk,omitempty"` // for which promise; none where all is well
	Fix      string   `json:"fix,omitempty"`  // the line that ends it
}

// Settings are those of the service that uses the Redis, where a judgement depends on them. The
// zero value of each field but Ack means the default beside it.
type Settings struct {
	Ack int // replicas that have to confirm each write, or redisstore.AckAll
	// what the store takes a restart for; "" = redisstore.RestartsAuto
	Restarts redisstore.Restarts
	// how far the clocks of two servers that can be master may differ; 0 = 1 s
	ClockSkew    time.Duration
	StoreTimeout time.Duration // how long a call may take; 0 = 1 s
	WorkerTTL    time.Duration // the shortest TTL of a worker-id pool in use; 0 = 30 s
}

func (s Settings) withDefaults() Settings {
	s.ClockSkew = cmp.Or(s.ClockSkew, time.Second)
	s.StoreTimeout = cmp.Or(s.StoreTimeout, time.Second)
	s.WorkerTTL = cmp.Or(s.WorkerTTL, 30*time.Second)
	return s
}

// Examine judges a Redis, the worst first. What is found at several servers alike is one finding.
func Examine(facts Inspection, settings Settings) []Finding {
	x := &exam{Inspection: facts, Settings: settings.withDefaults()}
	var found []Finding
	for _, check := range checks {
		if check.whole != nil {
			for _, verdict := range check.whole(x) {
				found = gather(found, check.id, "", verdict)
			}
			continue
		}
		for i := range x.Servers {
			if s := &x.Servers[i]; s.Away == "" || check.away {
				found = gather(found, check.id, s.Addr, check.server(x, s))
			}
		}
	}
	sortByWorst(found)
	return found
}

// Worst is the worst severity of findings; OK if there are none.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, f := range findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// exam is one examination: facts, and what they are held against.
type exam struct {
	Inspection
	Settings
}

// check is a row of the table of all that is looked at: at each server, or at the whole.
type check struct {
	id     string
	server func(x *exam, s *Inspected) verdict
	whole  func(x *exam) []verdict
	away   bool // it is for servers that could not be asked, too
}

// verdict is what a check came to. The zero verdict is that there is nothing to say, since the
// check is not about such a server, or could not see.
type verdict struct {
	severity         Severity
	found, risk, fix string
}

func fine(format string, args ...any) verdict {
	return verdict{found: fmt.Sprintf(format, args...)}
}

func note(found, risk, fix string) verdict     { return verdict{Note, found, risk, fix} }
func warning(found, risk, fix string) verdict  { return verdict{Warning, found, risk, fix} }
func critical(found, risk, fix string) verdict { return verdict{Critical, found, risk, fix} }

// at makes a verdict one of another severity.
func (v verdict) at(severity Severity) verdict {
	v.severity = severity
	return v
}

// gather adds a verdict, to the same one of another server if there is one.
func gather(found []Finding, id, where string, v verdict) []Finding {
	if v.found == "" {
		return found
	}
	f := Finding{ID: id, Severity: v.severity, Found: v.found, Risk: v.risk, Fix: v.fix}
	if where == "" {
		return append(found, f)
	}
	for i := range found {
		if same := &found[i]; same.ID == f.ID && same.Severity == f.Severity && same.Found == f.Found && same.Fix == f.Fix &&
			same.Risk == f.Risk {
			same.Where = append(same.Where, where)
			return found
		}
	}
	f.Where = []string{where}
	return append(found, f)
}

func sortByWorst(found []Finding) {
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
}

// checks is all that is looked at, in the order in which findings of one severity are told.
var checks = []check{
	{id: "away", server: away, away: true},
	{id: "role", whole: role},
	{id: "version", server: version},
	{id: "keydb", server: keyDB},
	{id: "commands", server: commands},
	{id: "rights", server: rights},
	{id: "scripts", server: scriptsRun},
	{id: "incarnation", server: incarnation},
	{id: "formats", server: formats},
	{id: "write", server: writes},

	{id: "persistence", server: persistence},
	{id: "appendfsync", server: appendfsync},
	{id: "restarts", server: restarts},
	{id: "disk-errors", server: diskErrors},
	{id: "eviction", server: eviction},
	{id: "memory", server: memory},

	{id: "replicas", server: enoughReplicas},
	{id: "replica-address", server: otherAddress},
	{id: "ack", server: ackCoversHeirs},
	{id: "absent-replica", server: absentReplica},
	{id: "min-replicas", server: minReplicas},
	{id: "wait-reach", server: waitReach},
	{id: "replica-lag", server: replicaLag},
	{id: "replica-link", server: replicaLink},
	{id: "replica-priority", whole: replicaPriority},
	{id: "replica-writes", server: replicaWrites},
	{id: "replica-stale", server: replicaStale},
	{id: "repl-backlog", server: backlog},
	{id: "sync-delay", server: syncDelay},

	{id: "clock-servers", whole: clocksApart},
	{id: "clock-host", server: clockHere},
	{id: "latency", server: latency},

	{id: "sentinels", whole: sentinelCount},
	{id: "sentinel-rights", whole: sentinelRights},
	{id: "sentinel-quorum", whole: sentinelQuorum},
	{id: "sentinel-view", whole: sentinelView},
	{id: "sentinel-down-after", whole: sentinelDownAfter},

	{id: "cluster-slots", whole: clusterSlots},
	{id: "cluster-nodes", whole: clusterNodes},
	{id: "cluster-moving", whole: clusterMoving},
	{id: "cluster-coverage", server: clusterCoverage},
	{id: "cluster-migration", server: clusterMigration},

	{id: "password", server: password},
	{id: "tls", server: encrypted},
	{id: "settings", server: settingsSeen},
	{id: "maxclients", server: clients},
	{id: "timeout", server: idleTimeout},
	{id: "tcp-keepalive", server: keepalive},
	{id: "script-limit", server: scriptLimit},
	{id: "notifications", server: notifications},
	{id: "huge-pages", server: hugePages},
	{id: "database", whole: database},
}
