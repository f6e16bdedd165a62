package cli

import (
	"slices"
	"testing"

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
		execute(t, nil, append([]string{"token", "ls", "--in-doubt", "--json"}, at...)...).exits(done).into(&page)
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
			execute(t, nil, append([]string{"token", "ls", "--in-doubt", "--with-prefix", names["refused"]}, at...)...).exits(done).prints("OPERATION", names["refused"], "token settle")
			settle := func(fate string, more ...string) result {
				return execute(t, nil, append(append([]string{"token", "settle", names[fate], "--" + fate, "--reason", "ticket"}, more...), at...)...)
			}
			for range 2 { // repeating it is harmless
				settle("completed", "--status", "201", "--body", `{"id":"pay_1"}`).exits(done).prints("settled: completed")
			}
			settle("not-begun").exits(done)
			settle("refused").exits(done)
			execute(t, nil, append([]string{"token", "ls", "--in-doubt"}, at...)...).exits(done).prints("No operation is in doubt")
			p.answers(200, "POST", "/token/"+tokens["completed"]+"/claim", `{"fingerprint":"f"}`)
			p.answers(200, "POST", "/token/"+tokens["not-begun"]+"/claim", `{"fingerprint":"f"}`)
			p.answers(409, "POST", "/token/"+tokens["refused"]+"/claim", `{"fingerprint":"f"}`)
			settle("not-begun").exits(tryLater) // the attempt that began just now may be running
			settle("completed", "--status", "500").exits(failed)
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
		{[]string{"ls"}, usage, "--in-doubt"},
		{[]string{"settle"}, usage, "one operation"},
		{[]string{"settle", operation}, usage, "--completed, --not-begun or --refused"},
		{[]string{"settle", operation, "--completed", "--refused"}, usage, "not two"},
		{[]string{"settle", operation, "--refused", "--body", "x"}, usage, "--completed alone"},
		{[]string{"settle", operation, "--completed", "--body", "x", "--body-file", "-"}, usage, "not both"},
		{[]string{"settle", "short", "--refused"}, usage, "32 characters"},
		{[]string{"settle", operation, "--refused"}, failed, "unknown token"},
	} {
		got := execute(t, nil, append(append([]string{"token"}, row.args...), "--server", p.banner.URL)...).exits(row.code)
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
			execute(t, nil, slices.Concat([]string{"token", "settle"}, at, line)...).exits(failed, "unknown token")
		}
	}
	execute(t, nil, "token", "settle", "--refused", "--no-such-flag-with-32-characters", "x").exits(usage, "unknown flag")
	execute(t, nil, "token", "settle", "-tDwoli0V1W7KHI9ITI3W7reomb2RCc").exits(usage, "unknown shorthand")
	execute(t, nil, "-tDwoli0V1W7KHI9ITI3W7reomb2RCcY", "token", "settle", "x").exits(usage, "unknown shorthand")
}
