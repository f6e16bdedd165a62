package cli

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/server"
)

// On a Redis that knows no pool the first ids wait. The banner tells for how long, why, the command
// that says "this is new", and what that risks.
func TestBannerTellsHowLongAPoolThatIsNewWaits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t).URL()
	for _, row := range []struct {
		args []string
		want int64
	}{
		{[]string{"--redis", redis}, 31_000},
		{[]string{"--redis", redis, "--worker-longest-ttl", "10m", "--clock-skew", "2s"}, 602_000},
		{[]string{"--redis", redis, "--pools", "{brief: {ttl: 1s}, long: {ttl: 5m}}"}, 301_000},
		{[]string{"--redis", redis, "--new-pools", "trust"}, 0},
		{nil, 0}, // the embedded store is new
	} {
		p := serve(t, row.args...)
		expect.Equal(t, "wait of a pool that is new, in the banner of serve with "+strings.Join(row.args, " "), p.banner.NewPoolWait, row.want)
		p.stop()
	}
	expect.Contains(t, "the banner for people", started{NewPoolWait: 31_000}.people(&config.Service{Server: server.Config{IDPool: "main"}}),
		"does not know waits for up to 31s, in case it was lost", "`coatcheck worker create POOL` says that it is new", "ids can then come twice")
}
