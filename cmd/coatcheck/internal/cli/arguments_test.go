package cli

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// What `lock run --ttl` means once made a counter within it end: the variable is inherited.
func TestArgumentsOfACallComeFromItsCommandLineOnly(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	redis := server.URL()
	with := func(variables ...string) map[string]string {
		env := map[string]string{"COATCHECK_REDIS": redis}
		for i := 0; i+1 < len(variables); i += 2 {
			env["COATCHECK_"+variables[i]] = variables[i+1]
		}
		return env
	}
	execute(t, with("TTL", "1h"), "incr", "visits").exits(done)
	visits := onstore.Key(storetest.Open(t, redisstore.Config{URL: redis}), "counter", "visits")
	expect.Equal(t, "time to live of a counter that began beside COATCHECK_TTL", server.Client().TTL(t.Context(), visits).Val(), -1)
	for _, value := range []string{"1\n", "2\n"} {
		got := execute(t, with("REQUEST_ID", "a"), "incr", "orders").exits(done)
		expect.Equal(t, "value beside COATCHECK_REQUEST_ID", got.stdout, value)
	}
	execute(t, with("YES", "true"), "counter", "rm", "orders").exits(usage, "--yes")
	execute(t, with("COMPLETED", "true"), "operation", "settle", strings.Repeat("A", 32)).exits(usage, "--completed")
}

func TestArgumentsOfACallStandInNoFile(t *testing.T) {
	t.Parallel()
	p := serve(t)
	path := file(t, "server: "+p.banner.URL+"\nttl: 2h\n")
	execute(t, nil, "incr", "orders", "--config", path).exits(usage, `line 2: unknown setting "ttl"`, "--ttl")
}
