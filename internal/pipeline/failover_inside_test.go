package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// A dial that ends after Close, as go-redis has them apart from its calls, leaves no subscription
// to a sentinel behind.
func TestDialAfterCloseStaysWithNoSentinel(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 0)
	subscribed := func() int {
		listening := 0
		for _, sentinel := range set.Sentinels() {
			clients := sentinel.Client().Do(t.Context(), "CLIENT", "LIST").Val()
			listening += strings.Count(clients.(string), " sub=2 ")
		}
		return listening
	}
	before := subscribed()
	hosts, _, _ := strings.Cut(strings.TrimPrefix(set.URL(), "redis+sentinel://"), "/")
	client := newFailover(redisconn.Failover(redisconn.Target{Master: "coatcheck", Hosts: strings.Split(hosts, ",")}, time.Minute))
	dial := client.DialHook(client.client.Options().Dialer)
	conn, err := dial(t.Context(), "tcp", "")
	expect.NoError(t, "a dial", err)
	expect.Eventually(t, "a sentinel is subscribed to", func() bool { return subscribed() == before+1 })
	expect.NoError(t, "Close", client.Close())
	expect.NoError(t, "closing the connection", conn.Close())
	late, err := dial(t.Context(), "tcp", "")
	expect.NoError(t, "a dial after Close", err)
	expect.NoError(t, "closing the connection", late.Close())
	expect.Eventually(t, "no sentinel is subscribed to", func() bool { return subscribed() == before })
}
