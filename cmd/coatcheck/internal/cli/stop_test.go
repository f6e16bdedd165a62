package cli

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

func TestStopThatCutsRequestsOffIsWarnedOf(t *testing.T) {
	for limit, warned := range map[time.Duration]bool{0: false, 29 * time.Second: true, 30 * time.Second: false} {
		var log strings.Builder
		c := config.Service{Server: server.Config{StopTimeout: limit, RequestTimeout: 30 * time.Second}}
		expect.Equal(t, "the stop timeout", stopWithin(&c, slog.New(slog.NewTextHandler(&log, nil))), limit)
		expect.Equal(t, "a stop timeout of "+limit.String()+" is warned of", strings.Contains(log.String(), "stop-timeout"), warned)
	}
}
