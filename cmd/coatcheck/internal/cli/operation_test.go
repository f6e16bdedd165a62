package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// inDoubt lists the operations in doubt, by their request ids, once there are n.
func inDoubt(t *testing.T, at []string, n int) map[string]string {
	t.Helper()
	names := map[string]string{}
	expect.Eventually(t, "the attempts' leases have ended", func() bool {
		var page api.Operations
		execute(t, nil, append([]string{"operation", "ls", "--in-doubt", "--json"}, at...)...).exits(done).into(&page)
		for _, operation := range page.Operations {
			names[operation.RequestID] = operation.Operation
		}
		return len(page.Operations) == n
	})
	return names
}

func TestOperationsInDoubtAreSettledAtAServiceAndStraightOnRedis(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	for place, at := range map[string][]string{"service": {"--server", p.banner.URL}, "redis": {"--redis", redis.URL()}} {
		t.Run(place, func(t *testing.T) {
			tokens := map[string]string{}
			for _, fate := range []string{"completed", "not-begun", "refused"} {
				var issued api.TokenIssued
				execute(t, nil, "token", "issue", "--json", "--server", p.banner.URL).exits(done).into(&issued)
				tokens[fate] = issued.Token
				p.answers(200, "POST", "/token/"+issued.Token+"/claim", `{"fingerprint":"f","lease_ms":100}`, "X-Request-Id: "+fate)
			}
			names := inDoubt(t, at, 3)
			execute(t, nil, append([]string{"operation", "ls", "--in-doubt", "--with-prefix", names["refused"]}, at...)...).exits(done).prints("OPERATION", names["refused"], "operation settle")
			settle := func(fate string, more ...string) result {
				return execute(t, nil, append(append([]string{"operation", "settle", names[fate], "--" + fate, "--reason", "ticket"}, more...), at...)...)
			}
			for range 2 { // repeating it is harmless
				settle("completed", "--status", "201", "--body", `{"id":"pay_1"}`).exits(done).prints("settled: completed")
			}
			settle("not-begun").exits(done)
			settle("refused").exits(done)
			execute(t, nil, append([]string{"operation", "show", names["refused"]}, at...)...).exits(done).prints("state", "refused")
			execute(t, nil, append([]string{"operation", "ls", "--in-doubt"}, at...)...).exits(done).prints("No operation is in doubt")
			p.answers(200, "POST", "/token/"+tokens["completed"]+"/claim", `{"fingerprint":"f"}`)
			p.answers(200, "POST", "/token/"+tokens["not-begun"]+"/claim", `{"fingerprint":"f"}`)
			p.answers(409, "POST", "/token/"+tokens["refused"]+"/claim", `{"fingerprint":"f"}`)
			settle("not-begun").exits(tryLater) // the attempt that began just now may be running
			settle("completed", "--status", "500").exits(failed)
			onOne := func(verb, fate string) result {
				return execute(t, nil, append([]string{"operation", verb, names[fate], "--json"}, at...)...)
			}
			var shown api.Operation
			var claimed api.Claimed
			onOne("show", "completed").exits(done).into(&shown)
			expect.Equal(t, "state of the operation that is shown", shown.State, api.StateCompleted)
			onOne("forget", "not-begun").exits(tryLater)
			for range 2 { // repeating it is harmless
				onOne("forget", "completed").exits(done).prints(`"forgotten":"` + names["completed"] + `"`)
			}
			p.answers(200, "POST", "/token/"+tokens["completed"]+"/claim", `{"fingerprint":"f"}`).into(t, &claimed)
			expect.Equal(t, "outcome of a claim after its answer was forgotten", claimed.Outcome, "granted")
		})
	}
}

// After an outage many operations of a route are settled in one go: first shown, then done.
func TestOperationsInDoubtOfARouteAreSettledTogether(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	for place, at := range map[string][]string{"service": {"--server", p.banner.URL}, "redis": {"--redis", redis.URL()}} {
		t.Run(place, func(t *testing.T) {
			keys := []string{"refunds 1", "orders 1", "orders 2", "orders 3"}
			for _, key := range keys {
				scope, name, _ := strings.Cut(key, " ")
				p.answers(200, "POST", "/operation/claim", `{"fingerprint":"f","lease_ms":100,"scope":"`+scope+place+`","key":"`+name+`"}`,
					"X-Request-Id: "+scope+name)
				inDoubt(t, at, slices.Index(keys, key)+1)
			}
			var page api.Operations
			execute(t, nil, append([]string{"operation", "ls", "--in-doubt", "--json"}, at...)...).exits(done).into(&page)
			settle := func(more ...string) result {
				return execute(t, nil, slices.Concat([]string{"operation", "settle", "--in-doubt", "--route", "orders" + place, "--not-begun"}, more, at)...)
			}
			third := page.Operations[3]
			shown := settle().exits(done)
			shown.prints(page.Operations[1].Operation, page.Operations[2].Operation, third.Operation)
			expect.Equal(t, "whether it shows another route's", strings.Contains(shown.stdout, page.Operations[0].Operation), false)
			shown.prints("Nothing is settled yet", "these 3 as not-begun", "--yes")
			inDoubt(t, at, 4)
			settle("--yes").exits(usage, "--yes needs --until")
			until := third.Since.UTC().Format(time.RFC3339Nano) // without the third
			settle("--until", until, "--yes").exits(done).prints("2 settled: not-begun")
			inDoubt(t, at, 2)
			settle("--until", "9999-01-01T00:00:00Z", "--since", "9998-01-01T00:00:00Z").exits(done).prints("No operation is in doubt", "of other routes or times: ", "refunds"+place)
			var report struct{ Settled, Left []string }
			settle("--until", "9999-01-01T00:00:00Z", "--yes", "--json").exits(done).into(&report)
			expect.Equal(t, "operations that were settled", report.Settled, []string{third.Operation})
			execute(t, nil, append([]string{"operation", "settle", "--in-doubt", "--route", "refunds" + place, "--refused", "--until",
				"9999-01-01T00:00:00Z", "--yes"}, at...)...).exits(done)
			inDoubt(t, at, 0)
			if place == "service" {
				expect.Equal(t, "lines of the log about what was settled", strings.Count(p.stderr.String(), "an operation in doubt was settled"), 4)
			}
		})
	}
}

func TestWrongSettlementsAreWrongUsage(t *testing.T) {
	p := serve(t)
	const operation = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, row := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"ls", "--in-doubt=false"}, usage, "no others are listed"},
		{[]string{"show"}, usage, "one operation"},
		{[]string{"show", "short"}, usage, "32 characters"},
		{[]string{"show", operation}, failed, "unknown operation"},
		{[]string{"forget"}, usage, "one operation"},
		{[]string{"forget", operation, operation}, usage, "one operation"},
		{[]string{"forget", operation}, failed, "unknown operation"},
		{[]string{"settle"}, usage, "one operation"},
		{[]string{"settle", operation, operation}, usage, "one operation"},
		{[]string{"settle", operation, "--refused", "--in-doubt", "--route", "x"}, usage, "not both"},
		{[]string{"settle", operation, "--refused", "--route", "x"}, usage, "belong to --in-doubt"},
		{[]string{"settle", "--in-doubt", "--refused"}, usage, "say whose operations: --route"},
		{[]string{"settle", "--in-doubt", "--route", "x", "--refused", "--since", "today"}, usage, "is not a time"},
		{[]string{"settle", operation}, usage, "--completed, --not-begun or --refused"},
		{[]string{"settle", operation, "--completed", "--refused"}, usage, "not two"},
		{[]string{"settle", operation, "--refused", "--body", "x"}, usage, "--completed alone"},
		{[]string{"settle", operation, "--completed", "--body", "x", "--body-file", "-"}, usage, "not both"},
		{[]string{"settle", "short", "--refused"}, usage, "32 characters"},
		{[]string{"settle", operation, "--refused"}, failed, "unknown operation"},
	} {
		got := execute(t, nil, append(append([]string{"operation"}, row.args...), "--server", p.banner.URL)...).exits(row.code)
		expect.Contains(t, got.line, got.stderr, row.stderr)
	}
}

// One name in 64 begins with a dash, and a command line takes what does for flags.
func TestOperationWhoseNameBeginsWithADashIsNoFlag(t *testing.T) {
	t.Parallel()
	at := []string{"--redis", redistest.Start(t).URL()}
	for _, operation := range []string{"-tDwoli0V1W7KHI9ITI3W7reomb2RCcY", "--Dwoli0V1W7KHI9ITI3W7reomb2RCcY"} {
		for _, line := range [][]string{
			{operation, "--refused", "--reason", "ticket"},
			{"--refused", operation, "--reason", "ticket"},
			{"--refused", "--reason", operation, operation},
			{"--refused", "--", operation},
		} {
			execute(t, nil, slices.Concat([]string{"operation", "settle"}, at, line)...).exits(failed, "unknown operation")
		}
	}
	execute(t, nil, "operation", "settle", "--refused", "--no-such-flag-with-32-characters", "x").exits(usage, "unknown flag")
	execute(t, nil, "operation", "settle", "-tDwoli0V1W7KHI9ITI3W7reomb2RCc").exits(usage, "unknown shorthand")
	execute(t, nil, "-tDwoli0V1W7KHI9ITI3W7reomb2RCcY", "operation", "settle", "x").exits(usage, "unknown shorthand")
}
