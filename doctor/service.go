package doctor

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// Service is what a running service was seen to be from outside.
type Service struct {
	Loopback bool // it is on this host
	Now      time.Time

	Ready       bool
	ReadyStatus int    // of /readyz
	Reason      string // why it is not ready
	Store       string // embedded, standalone, sentinel or cluster
	Ack         int
	Waiting     []string // pools of which it stamps no ids now, with the reasons

	// of the pool whose layout ends first, and when; "" = none ends, or they were not told
	EndsFirst string
	EndsAt    time.Time

	Version string // "" = it does not tell us
	Ours    string // this program's

	Clock   Clock
	Latency Latency // of /livez, with connections that are open

	Anonymous int // the status that who shows no key gets for reading counters
	WithKey   int // and the one with the key that was given; 0 = there is none

	Certificate *Certificate // nil = no TLS
	Problems    int          // the status of a problem's page
}

// Certificate is what a service shows of itself.
type Certificate struct {
	NotAfter  time.Time
	Untrusted string // why it is not trusted here
}

// serviceCheck is a row of the table of all that is looked at where a service is.
type serviceCheck struct {
	id    string
	judge func(s *Service, x Settings) verdict
}

var serviceChecks = []serviceCheck{
	{"service-ready", serviceReady},
	{"service-store", serviceStore},
	{"service-workers", serviceWorkers},
	{"service-layouts", serviceLayouts},
	{"service-keys", serviceKeys},
	{"service-key", serviceKey},
	{"service-tls", serviceTLS},
	{"service-clock", serviceClock},
	{"service-latency", serviceLatency},
	{"service-version", serviceVersion},
	{"service-problems", serviceProblems},
}

// ExamineService judges a running service, the worst first.
func ExamineService(facts Service, settings Settings) []Finding {
	settings = settings.withDefaults()
	var found []Finding
	for _, check := range serviceChecks {
		found = gather(found, check.id, "", check.judge(&facts, settings))
	}
	sortByWorst(found)
	return found
}

func serviceReady(s *Service, _ Settings) verdict {
	switch {
	case s.Ready:
		return fine("ready")
	case s.Reason == "":
		return critical(fmt.Sprintf("/readyz answers %d, and not as coatcheck does", s.ReadyStatus),
			"this is another service, or something stands between", "--server URL of the service itself")
	}
	return critical("not ready: "+s.Reason, "nothing is issued, counted, leased or locked",
		"coatcheck doctor --redis URL of its Redis")
}

func serviceStore(s *Service, _ Settings) verdict {
	switch {
	case s.Store == "":
		return verdict{}
	case s.Store == string(redisstore.ModeEmbedded):
		return note("the embedded store", "one process, no replicas, and a restart loses all state", "coatcheck serve --redis URL")
	case s.Ack == 0:
		return note(s.Store+", --ack 0", "if its Redis has replicas, a failover loses writes that were confirmed",
			"coatcheck doctor --redis URL of its Redis, which says what --ack it can have")
	}
	return fine("%s, --ack %d", s.Store, s.Ack)
}

func serviceWorkers(s *Service, _ Settings) verdict {
	if len(s.Waiting) == 0 {
		return verdict{}
	}
	return warning("stamps no ids of "+strings.Join(s.Waiting, "; "), "/id/snowflake is refused for them; none is stamped twice",
		"coatcheck worker create POOL, if the pool is new; else wait until its quarantine ends")
}

const day = 24 * time.Hour

func serviceLayouts(s *Service, _ Settings) verdict {
	if s.EndsFirst == "" {
		return verdict{}
	}
	left, at := s.EndsAt.Sub(s.Now), s.EndsAt.Format(time.DateOnly)
	found := fmt.Sprintf("the layout of pool %s has no timestamps from %s on", s.EndsFirst, at)
	const risk = "no worker id of it is leased then, and /id/snowflake of it is refused, for good"
	const fix = "another pool, or coatcheck worker create --replace POOL --layout with a wider timestamp"
	switch {
	case left < 30*day:
		return critical(found, risk, fix)
	case left < 365*day:
		return warning(found, risk, fix)
	}
	return fine("the layouts of all pools last beyond %s", at)
}

func serviceKeys(s *Service, _ Settings) verdict {
	switch {
	case s.Anonymous == http.StatusUnauthorized || s.Anonymous == http.StatusForbidden:
		return fine("who shows no key is refused")
	case s.Anonymous != http.StatusOK:
		return note(fmt.Sprintf("who shows no key gets status %d for GET /counter", s.Anonymous),
			"whether keys are needed cannot be told", "")
	case s.Loopback:
		return note("takes every caller on this host", "every program on this host can take locks and leases and set counters back",
			"coatcheck serve --access FILE")
	}
	return warning("takes every caller", "any caller can take locks and leases, issue tokens and set counters back",
		"coatcheck serve --access FILE")
}

func serviceKey(s *Service, _ Settings) verdict {
	switch s.WithKey {
	case 0:
		return verdict{}
	case http.StatusOK:
		return fine("the key may read")
	}
	return warning(fmt.Sprintf("with the key that was given GET /counter answers %d", s.WithKey),
		"commands and services with it are refused", "another --api-key, or one with the role read at least")
}

// soon is how long before its end a certificate should have been replaced.
const soon = 14 * 24 * time.Hour

func serviceTLS(s *Service, _ Settings) verdict {
	if s.Certificate == nil {
		if s.Loopback {
			return verdict{}
		}
		return warning("no TLS", "who can listen on the way reads keys, tokens and leases, and can use them",
			"coatcheck serve --tls-cert FILE --tls-key FILE")
	}
	left := s.Certificate.NotAfter.Sub(s.Now)
	switch date := s.Certificate.NotAfter.UTC().Format(time.DateOnly); {
	case left <= 0:
		return critical("its certificate has ended on "+date, "clients refuse it",
			"a new certificate in the files of --tls-cert and --tls-key: it is read without a restart")
	case s.Certificate.Untrusted != "":
		return critical("its certificate is not trusted here: "+s.Certificate.Untrusted,
			"clients here refuse it, or were told not to look, and then any host can stand between",
			"--server-ca FILE of the authority that made it; or a certificate for this host's name")
	case left < soon:
		return warning(fmt.Sprintf("its certificate ends on %s, in %d days", date, int(left.Hours()/24)),
			"clients refuse it from then on",
			"a new certificate in the files of --tls-cert and --tls-key: it is read without a restart")
	default:
		return fine("TLS, its certificate ends on %s", date)
	}
}

func serviceClock(s *Service, x Settings) verdict {
	if s.Clock.Err != "" {
		return note("its clock cannot be seen: "+s.Clock.Err, "", "")
	}
	if s.Clock.Offset.Abs()-s.Clock.Within <= x.ClockSkew {
		return fine("its clock agrees with this host's to %s", agreement(s.Clock.Offset.Abs()+s.Clock.Within))
	}
	return warning(fmt.Sprintf("its clock is %s off this host's (±%s)", short(s.Clock.Offset), short(s.Clock.Within)),
		"dates in counters' keys and numbers are by its clock, a client's deadlines by this one's; leases are by Redis's and hold",
		"set both clocks by NTP (chronyc tracking)")
}

func serviceLatency(s *Service, x Settings) verdict {
	took := s.Latency
	if took.N == 0 {
		return verdict{}
	}
	if took.P99 > x.StoreTimeout {
		return warning(fmt.Sprintf("a request that asks no store takes p50 %s, p99 %s", short(took.P50), short(took.P99)),
			"clients' deadlines end before the answer is there: unknown outcomes, lost leases",
			"look at its load and at the network")
	}
	return fine("a request that asks no store takes p50 %s, p99 %s", short(took.P50), short(took.P99))
}

func serviceVersion(s *Service, _ Settings) verdict {
	switch {
	case s.Version == "":
		return note("its version cannot be seen", "none", "an --api-key that may read, for /metrics")
	case s.Version != s.Ours:
		return note("version "+s.Version+", and this program is "+s.Ours, "flags and routes may differ", "the same version of both")
	}
	return fine("version %s, as this program", s.Version)
}

func serviceProblems(s *Service, _ Settings) verdict {
	if s.Problems != http.StatusOK {
		return warning(fmt.Sprintf("the page of a problem answers %d", s.Problems),
			"the links in its errors lead nowhere; something stands between, or this is another service", "let /problems/ through")
	}
	return fine("pages of its problems are there")
}
