package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/quorum"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func openQuorum(t testing.TB, urls ...string) *quorum.Quorum {
	t.Helper()
	q, err := quorum.Open(t.Context(), urls, redisstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// none are URLs at which no server answers, so that all that can be wrong is in them.
func none(n int) (urls []string) {
	for i := range n {
		urls = append(urls, fmt.Sprintf("redis://127.0.0.1:%d", i+1))
	}
	return urls
}

func TestQuorumIsOpenedOrRefused(t *testing.T) {
	t.Parallel()
	three := none(3)
	with := func(urls ...string) []string { return append(urls, three[0]) }
	for _, row := range []struct {
		name   string
		urls   []string
		config redisstore.Config
		says   []string // nil = it is sound
	}{
		{"three", three, redisstore.Config{}, nil},
		{"five", none(5), redisstore.Config{Ack: 1, Prefix: "team:"}, nil},
		{"embedded ones, each another", []string{"embedded:", "embedded:", "embedded:"}, redisstore.Config{}, nil},
		{"different sets of the same sentinels", with("redis+sentinel://127.0.0.1:1/a", "redis+sentinel://127.0.0.1:1/b"), redisstore.Config{}, nil},

		{"none", nil, redisstore.Config{}, []string{"0 servers"}},
		{"one", none(1), redisstore.Config{}, []string{"1 servers"}},
		{"an even number", none(4), redisstore.Config{}, []string{"4 servers"}},
		{"a URL for all", three, redisstore.Config{URL: "redis://h"}, []string{"neither a URL"}},
		{"a directory for all", three, redisstore.Config{DataDir: "/x"}, []string{"neither a URL"}},
		{"wrong URLs", []string{"redis://", three[0], "ftp://u:secret@h"}, redisstore.Config{}, []string{"server 1: redis URL: the host is empty", "server 3: redis URL: unknown scheme"}},
		{"something else that is wrong", three, redisstore.Config{Ack: -1}, []string{"server 1: ack -1"}},
		{"one twice", with(three[0], three[1]), redisstore.Config{}, []string{"servers 1 and 3 are one"}},
		{"databases of one", with(three[0]+"/3", three[1]), redisstore.Config{}, []string{"servers 1 and 3 are one"}},
		{"users of one", with("redis://ann:secret@127.0.0.1:1", three[1]), redisstore.Config{}, []string{"servers 1 and 3 are one"}},
		{"a port that is the default", []string{"redis://h", "redis://h:6379", three[0]}, redisstore.Config{}, []string{"servers 1 and 2 are one"}},
		{"a socket twice", with("unix:///a/b", "unix:///a/b"), redisstore.Config{}, []string{"servers 1 and 2 are one"}},
		{"a set twice", with("redis+sentinel://h1,h2/a", "redis+sentinel://H2,h3/a/2"), redisstore.Config{}, []string{"servers 1 and 2 are one"}},
		{"a cluster twice", with("redis+cluster://h1,h2", "redis+cluster://h3,h2"), redisstore.Config{}, []string{"servers 1 and 2 are one"}},
		{"a node of a cluster", []string{"redis+cluster://h1,127.0.0.1:1", three[0], three[1]}, redisstore.Config{}, []string{"servers 1 and 2 are one"}},
		{"all at once", []string{"redis://", three[0], three[0], three[1]}, redisstore.Config{URL: "redis://h"}, []string{"4 servers", "neither a URL", "server 1", "servers 2 and 3"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			q, err := quorum.Open(t.Context(), row.urls, row.config)
			if row.says == nil {
				if err != nil {
					t.Fatal(err)
				}
				if n := len(row.urls); len(q.Stores()) != n || q.Majority() != n/2+1 {
					t.Errorf("%d stores, of which %d are a majority", len(q.Stores()), q.Majority())
				}
				if err := errors.Join(q.Close(), q.Close()); err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("it is opened")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(row.says) || strings.Contains(err.Error(), "secret") {
				t.Fatalf("got %q, want %q", lines, row.says)
			}
			for i, says := range row.says {
				if !strings.Contains(lines[i], says) {
					t.Errorf("got the fault %q, want one that says %q", lines[i], says)
				}
			}
		})
	}
}

// What URLs do not show servers tell: that two names are one's, and that one is a copy of another.
func TestQuorumRefusesServersThatAreNotApart(t *testing.T) {
	t.Parallel()
	one, copied, other := redistest.Start(t), redistest.Start(t), redistest.Start(t)
	behind := redistest.StartProxy(t, one.Addr(), func([]byte) (redistest.Fate, func()) { return redistest.Pass, nil })
	host, port, err := net.SplitHostPort(one.Addr())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(says string, urls ...string) {
		t.Helper()
		_, err := quorum.Open(t.Context(), urls, redisstore.Config{Timeout: time.Minute})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Fatalf("got %v, want an error that says %q", err, says)
		}
	}
	openQuorum(t, one.URL(), copied.URL(), other.URL())
	refused("servers 2 and 3", copied.URL(), one.URL(), behind.URL())
	if err := copied.Client().ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, "the replica has a link to its master", func() bool {
		return strings.Contains(copied.Client().Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	refused("servers 1 and 2", one.URL(), copied.URL(), other.URL())
	cluster := redistest.StartCluster(t, 3, 0)
	refused("servers 1 and 3", cluster.URL(), other.URL(), behindAnother(t, cluster))
}

// behindAnother is a master of a cluster at another address.
func behindAnother(t *testing.T, cluster *redistest.Cluster) string {
	t.Helper()
	return redistest.StartProxy(t, cluster.MasterOf("any").Addr(), func([]byte) (redistest.Fate, func()) { return redistest.Pass, nil }).URL()
}

func TestQuorumOpensWithoutThoseThatAreAwayAndSaysSo(t *testing.T) {
	t.Parallel()
	one, two := redistest.Start(t), redistest.Start(t)
	two.Kill()
	var log strings.Builder
	urls := []string{one.URL(), two.URL(), none(1)[0]}
	q, err := quorum.Open(t.Context(), urls, redisstore.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), two.Addr()) {
		t.Errorf("the log says %q", log.String())
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// voice is what a server says in a test: y yes, n no, e an error, and a capital says it after all
// others; a dot never does, until its patience ends.
func voice(ctx context.Context, say rune) (string, bool, error) {
	if say >= 'A' && say <= 'Z' {
		time.Sleep(time.Second)
		say += 'a' - 'A'
	}
	switch say {
	case 'y', 'n':
		return string(say), say == 'y', nil
	case 'e':
		return "", true, errors.New("e")
	}
	<-ctx.Done()
	return "", true, ctx.Err()
}

// Each row is what the servers say, and what of it is heard: it is over when the rest can change
// nothing, and not before.
func TestAskReturnsAsSoonAsItIsDecided(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		say, heard                  string
		carried, rejected, answered bool
		took                        time.Duration
	}{
		{"yy.", "yy", true, false, true, 0},
		{"yyy..", "yyy", true, false, true, 0},
		{"nn.", "nn", false, true, true, 0},
		{"yYn", "yny", true, false, true, time.Second},
		{"ynN", "ynn", false, true, true, time.Second},
		{"yeY", "yey", true, false, true, time.Second},
		// it is rejected, and not merely not carried
		{"neN", "nen", false, true, true, time.Second},
		{"neY", "ney", false, false, true, time.Second},
		{"ee.", "ee", false, false, false, 0},
		{"eeN", "ee", false, false, false, 0},
		{"..y", "yee", false, false, false, time.Minute},
		{"E.y", "yee", false, false, false, time.Minute},
		{"...", "ee", false, false, false, time.Minute},
		{"yn.", "yne", false, false, true, time.Minute},
		{"yynN.", "yynne", false, false, true, time.Minute},
		{"yynnN", "yynnn", false, true, true, time.Second},
		{"eennN", "eennn", false, true, true, time.Second},
		{"yeeN.", "yeene", false, false, false, time.Minute},
		{"eeeN.", "eee", false, false, false, 0},
		{"nnee.", "nneee", false, false, false, time.Minute},
	} {
		t.Run(row.say, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var urls []string
				for range row.say {
					urls = append(urls, "embedded:")
				}
				q := openQuorum(t, urls...)
				start := time.Now()
				answers := quorum.Ask(t.Context(), q, time.Minute, func(ctx context.Context, i int) (string, bool, error) {
					return voice(ctx, rune(row.say[i]))
				})
				heard, votes := strings.Builder{}, answers.Votes()
				for _, said := range answers.Said {
					if said.Err == nil {
						voiced := strings.ToLower(row.say[said.Server : said.Server+1])
						expect.Equal(t, fmt.Sprintf("what server %d said", said.Server), said.Value, voiced)
						expect.Equal(t, fmt.Sprintf("vote of server %d", said.Server), said.Yes, voiced == "y")
					}
					heard.WriteString(map[bool]string{true: said.Value, false: "e"}[said.Err == nil])
				}
				if sorted(heard.String()) != sorted(row.heard) || time.Since(start) != row.took {
					t.Errorf("heard %q after %v, want %q after %v", heard.String(), time.Since(start), row.heard, row.took)
				}
				if votes.Carried() != row.carried || votes.Rejected() != row.rejected || votes.Answered() != row.answered {
					t.Errorf("%+v: carried %v, rejected %v, answered %v", votes, votes.Carried(), votes.Rejected(), votes.Answered())
				}
			})
		})
	}
}

func sorted(text string) string {
	return strings.Repeat("y", strings.Count(text, "y")) + strings.Repeat("n", strings.Count(text, "n")) + strings.Repeat("e", strings.Count(text, "e"))
}

type asker string

// The caller may go, and what was asked goes on, with what the asker's context holds, until its
// own time is over. Closing waits for it.
func TestCallsGoOnUntilTheirPatienceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := openQuorum(t, "embedded:", "embedded:", "embedded:")
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), asker("who"), "ann"), time.Second)
		defer cancel()
		start := time.Now()
		var over atomic.Int32
		call := func(ctx context.Context, i int) (int, bool, error) {
			<-ctx.Done()
			if ctx.Value(asker("who")) == "ann" && time.Since(start) == time.Minute {
				over.Add(1)
			}
			return 0, true, ctx.Err()
		}
		if answers := quorum.Ask(ctx, q, time.Minute, call); len(answers.Said) != 0 || time.Since(start) != time.Second {
			t.Errorf("%+v after %v", answers.Said, time.Since(start))
		}
		if err := q.Close(); err != nil || over.Load() != 3 || time.Since(start) != time.Minute {
			t.Errorf("closed after %v, %d calls, %v", time.Since(start), over.Load(), err)
		}
	})
}

func TestNobodyIsAskedForAnEndedContextOrByAClosedQuorum(t *testing.T) {
	t.Parallel()
	q := openQuorum(t, "embedded:", "embedded:", "embedded:")
	ask := func(ctx context.Context) *redisstore.Error {
		answers := quorum.Ask(ctx, q, time.Minute, func(context.Context, int) (int, bool, error) {
			t.Error("asked")
			return 0, true, nil
		})
		expect.Equal(t, "votes where none is asked", answers.Votes(), quorum.Votes{Silent: 3, Of: 3})
		return answers.Silence(ctx, "any")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ask(ended); !errors.Is(err, context.Canceled) || !errors.Is(err, redisstore.ErrUnavailable) {
		t.Error(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context()); !errors.Is(err, redisstore.ErrUnavailable) || q.Each(t.Context(), time.Minute, func(context.Context, int) { t.Error("started") }) {
		t.Error(err)
	}
}

// An error of one server is not the quorum's: what it says of the whole follows from all of them.
func TestSilenceIsRefusedOnlyIfNobodyCanHaveDoneAnything(t *testing.T) {
	t.Parallel()
	refused := &redisstore.Error{Op: "op", Class: redisstore.ErrUnavailable, Cause: errors.New("away")}
	late := &redisstore.Error{Op: "op", Class: redisstore.ErrUnknownOutcome, Cause: context.DeadlineExceeded}
	for _, row := range []struct {
		name   string
		errors []error // nil = no; errYes = yes
		class  error
		late   bool
	}{
		{"one says no, and the others refuse", []error{nil, refused, refused}, redisstore.ErrUnavailable, false},
		{"one says yes", []error{errYes, refused, refused}, redisstore.ErrUnknownOutcome, false},
		{"one is late", []error{nil, refused, late}, redisstore.ErrUnknownOutcome, true},
		{"two refuse, and the third is not waited for", []error{refused, refused, nil}, redisstore.ErrUnknownOutcome, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := openQuorum(t, "embedded:", "embedded:", "embedded:")
				answers := quorum.Ask(t.Context(), q, time.Minute, func(_ context.Context, i int) (int, bool, error) {
					time.Sleep(time.Duration(i) * time.Second) // one after the other
					if errors.Is(row.errors[i], errYes) {
						return 0, true, nil
					}
					return 0, false, row.errors[i]
				})
				err := answers.Silence(t.Context(), "asking")
				for _, class := range []error{redisstore.ErrUnavailable, redisstore.ErrUnknownOutcome} {
					if errors.Is(err, class) != errors.Is(row.class, class) {
						t.Errorf("got %v, want %v", err, row.class)
					}
				}
				if errors.Is(err, context.DeadlineExceeded) != row.late || !strings.HasPrefix(err.Error(), "asking: ") {
					t.Error(err)
				}
			})
		})
	}
}

var errYes = errors.New("yes")
