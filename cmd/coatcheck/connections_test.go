package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestConnectionsAreNoMoreThanThereAreFileDescriptorsFor(t *testing.T) {
	descriptors, known := descriptorLimit()
	if !known || descriptors <= beside {
		t.Fatalf("%d descriptors, known: %v", descriptors, known)
	}
	var log bytes.Buffer
	few := &config{maxConnections: 7}
	if n := few.connections(slog.New(slog.NewTextHandler(&log, nil))); n != 7 || log.Len() > 0 {
		t.Errorf("%d connections: %s", n, log.String())
	}
	many := &config{maxConnections: int64(descriptors)}
	if n := many.connections(slog.New(slog.NewTextHandler(&log, nil))); n != int(descriptors)-beside || !strings.Contains(log.String(), "fewer connections than max-connections says") {
		t.Errorf("%d connections of %d descriptors: %s", n, descriptors, log.String())
	}
}
