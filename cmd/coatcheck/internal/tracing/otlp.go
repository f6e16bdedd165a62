package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// client sends spans by OTLP over HTTP, https://opentelemetry.io/docs/specs/otlp/#otlphttp, for
// otlptrace. It is safe for concurrent use. OpenTelemetry's own one, otlptracehttp, imports gRPC,
// whose templates keep every method of every type: half as much again as the rest of the program.
type client struct {
	client   *http.Client
	endpoint string
	headers  http.Header
	compress bool
	away     *complaints   // says at once that the collector cannot be reached
	closing  chan struct{} // is closed when the process ends
}

const (
	// Without Retry-After, the wait before another try grows by half each time, to the longest.
	firstWait, longestWait = 5 * time.Second, 30 * time.Second
	tryFor                 = time.Minute // in all, if the context allows
	answerMost             = 4 << 20     // bytes that are read of an answer
	protobuf               = "application/x-protobuf"
)

// Start does nothing: the first request connects.
func (*client) Start(context.Context) error { return nil }

// Stop closes the connections. The SDK calls it after the last UploadTraces.
func (c *client) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans. It tries again, within a minute, when the collector is busy, cannot be
// reached or does not answer in time; spans that it did take may then be there twice. When the
// process ends, it tries once more, and then again only if the collector asks for it. An error is
// about lost spans, or what the collector complains of.
func (c *client) UploadTraces(ctx context.Context, spans []*wire.ResourceSpans) error {
	// an ExportTraceServiceRequest has the same bytes, but its package imports gRPC
	body, err := proto.Marshal(&wire.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.compress {
		var packed bytes.Buffer
		writer := gzip.NewWriter(&packed)
		if _, err := writer.Write(body); err != nil {
			return err
		}
		if err := writer.Close(); err != nil {
			return err
		}
		body = packed.Bytes()
	}
	end := time.Now().Add(tryFor)
	if limit, ok := ctx.Deadline(); ok && limit.Before(end) {
		end = limit // OTEL_BSP_EXPORT_TIMEOUT has passed then
	}
	for wait := firstWait; ; wait = min(wait*3/2, longestWait) {
		again, after, err := c.send(ctx, body)
		if !again {
			return err
		}
		closing := c.closing
		if after == 0 {
			select {
			case <-closing:
				return err
			default:
			}
			after = wait/2 + rand.N(wait) //nolint:gosec // so that not all senders come back at once
		} else {
			closing = nil // the collector knows best
		}
		if time.Now().Add(after).After(end) {
			return fmt.Errorf("given up, as the next try would be too late: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-closing:
		case <-time.After(after):
		}
	}
}

// send makes one request. It reports whether an error may pass, and how long the collector wants to
// be left alone; 0 = it did not say.
func (c *client) send(ctx context.Context, body []byte) (again bool, after time.Duration, _ error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return false, 0, err
	}
	request.Header = c.headers.Clone()
	request.Header.Set("Content-Type", protobuf)
	if c.compress {
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := c.client.Do(request)
	if err != nil {
		if mistrusted(err) || ctx.Err() != nil {
			return false, 0, err
		}
		c.away.Handle(err)
		return true, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerMost))
	if response.StatusCode/100 == 2 {
		return false, 0, errors.Join(err, complaintOf(response, answer))
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again, after = true, retryAfter(response.Header.Get("Retry-After"))
	}
	if response.Header.Get("Content-Type") == protobuf {
		answer, _ = field(answer, 2) // the message of a google.rpc.Status
	}
	return again, after, fmt.Errorf("the collector answers %s: %q", response.Status, answer[:min(len(answer), 1000)])
}

// mistrusted reports whether an error is that client and collector do not trust each other, which
// does not pass by itself.
func mistrusted(err error) bool {
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	network, ok := errors.AsType[*net.OpError](err)
	return unverified || ok && network.Op == "remote error" // an alert of TLS
}

// complaintOf returns what an ExportTraceServiceResponse says of spans that the collector refused,
// or warns of; nil if nothing.
func complaintOf(response *http.Response, answer []byte) error {
	if response.Header.Get("Content-Type") != protobuf {
		return nil
	}
	partly, _ := field(answer, 1)
	_, refused := field(partly, 1)
	message, _ := field(partly, 2)
	if refused == 0 && len(message) == 0 {
		return nil
	}
	return fmt.Errorf("the collector took all but %d spans: %q", refused, message)
}

// field returns a field of a message in protobuf, as bytes or as a number. It is empty and 0 where
// there is none.
func field(message []byte, wanted protowire.Number) (text []byte, n uint64) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return text, n
		}
		message = message[size:]
		if size = protowire.ConsumeFieldValue(number, kind, message); size < 0 {
			return text, n
		}
		switch {
		case number == wanted && kind == protowire.BytesType:
			text, _ = protowire.ConsumeBytes(message)
		case number == wanted && kind == protowire.VarintType:
			n, _ = protowire.ConsumeVarint(message)
		}
		message = message[size:]
	}
	return text, n
}

// retryAfter reads the header, seconds or a date; 0 = neither.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(time.Until(at), 0)
}
