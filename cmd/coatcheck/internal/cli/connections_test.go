package cli

import (
	"bytes"
	"log/slog"
	"testing"

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
