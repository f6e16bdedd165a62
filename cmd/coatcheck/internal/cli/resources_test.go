package cli

import (
	"bytes"
	"log/slog"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

func TestConnectionsAreNoMoreThanThereAreFileDescriptorsFor(t *testing.T) {
	descriptors, known := descriptorLimit()
	if !known || descriptors <= beside {
		t.Fatalf("file descriptors of this process: got %d, known: %v, want more than %d", descriptors, known, beside)
	}
	var log bytes.Buffer
	few := &config.Service{Server: server.Config{MaxConnections: 7}}
	expect.Equal(t, "connections with max-connections 7", connections(few, slog.New(slog.NewTextHandler(&log, nil))), 7)
	expect.Equal(t, "log with max-connections 7", log.String(), "")
	many := &config.Service{Server: server.Config{MaxConnections: int(descriptors)}}
	expect.Equal(t, "connections with max-connections as many as descriptors", connections(many, slog.New(slog.NewTextHandler(&log, nil))), int(descriptors)-beside)
	expect.Contains(t, "log with max-connections as many as descriptors", log.String(), "fewer connections than max-connections says")
}

func TestStopThatCutsRequestsOffIsWarnedOf(t *testing.T) {
	for limit, warned := range map[time.Duration]bool{0: false, 29 * time.Second: true, 30 * time.Second: false} {
		var log strings.Builder
		c := config.Service{Server: server.Config{StopTimeout: limit, RequestTimeout: 30 * time.Second}}
		expect.Equal(t, "the stop timeout", stopWithin(&c, slog.New(slog.NewTextHandler(&log, nil))), limit)
		expect.Equal(t, "a stop timeout of "+limit.String()+" is warned of", strings.Contains(log.String(), "stop-timeout"), warned)
	}
}

// Until a service's heap has twice the spare memory it is not collected, which is far more than a
// service that has just begun would get.
func TestServiceAndGatewayHaveRoomForGarbage(t *testing.T) {
	for name, admin := range map[string]string{
		"service": serveProcess(t, "--admin-listen", "127.0.0.1:0").banner.AdminURL,
		"gateway": runGatewayProcess(t, "http://127.0.0.1:1", payRoutes).banner.AdminURL,
	} {
		eventually(t, name+" collects garbage at 32 MiB and more", func() bool { return nextCollection(t, admin) >= 2*mostSpare })
	}
}

var nextGC = regexp.MustCompile(`(?m)^go_memstats_next_gc_bytes (\S+)$`)

// nextCollection is the size of the heap at which a process collects its garbage next, in bytes.
func nextCollection(t *testing.T, admin string) float64 {
	_, metrics := page(t, admin+"/metrics")
	found := nextGC.FindStringSubmatch(metrics)
	if found == nil {
		t.Fatalf("no %s in %s", nextGC, metrics)
	}
	bytes, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatalf("the value of %s: %v", nextGC, err)
	}
	return bytes
}

func TestSpareMemoryIsAnEighthOfALimitAtMost(t *testing.T) {
	was := debug.SetMemoryLimit(64 << 20)
	defer debug.SetMemoryLimit(was)
	expect.Equal(t, "spare bytes under a limit of 64 MiB", len(spareHeap()), 8<<20)
	debug.SetMemoryLimit(1 << 40)
	expect.Equal(t, "spare bytes under a limit of 1 TiB", len(spareHeap()), mostSpare)
}
