package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestTestsShareServersAndNoPrefix(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]func(testing.TB) Space{"server": Shared, "cluster": SharedCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, other := Space{}, Space{}
			t.Run("one test", func(t *testing.T) { one = shared(t) })
			t.Run("another test", func(t *testing.T) { other = shared(t) })
			expect.Equal(t, "URL for another test", other.URL, one.URL)
			if one.Prefix == "" || one.Prefix == other.Prefix {
				t.Errorf("prefixes of two tests: got %q and %q, want different ones", one.Prefix, other.Prefix)
			}
		})
	}
}

// This test outlives the test that was the first to ask for the server.
func TestSharedServerOutlivesItsFirstTest(t *testing.T) {
	t.Parallel()
	space := Space{}
	t.Run("first", func(t *testing.T) { space = Shared(t) })
	options, err := redis.ParseURL(space.URL)
	expect.NoError(t, "URL of a shared server", err)
	client := redis.NewClient(options)
	defer client.Close()
	expect.Error(t, "PING after the first test's end", client.Ping(t.Context()).Err(), nil)
}

func TestSharedServerThatCannotStartFailsEveryTest(t *testing.T) {
	t.Parallel()
	started := 0
	shared := forBinary(func(t testing.TB) *Server {
		started++
		t.Fatalf("no server today")
		return nil
	})
	for range 2 {
		failure := failureOf(t, func(t testing.TB) { spaceOn(t, shared) })
		expect.Contains(t, "failure of a test that asks for the server", failure, "no server today")
	}
	expect.Equal(t, "starts for two tests", started, 1)
}
