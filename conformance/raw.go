package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// raw is a connection of the suite's own, for what net/http does not do or does not show.
type raw struct {
	net.Conn
	request request
	within  context.Context // its end closes the connection
	close   func()
}

// dial connects to where a request goes. The connection lasts for the time that an answer may take.
func (s *suite) dial(ctx context.Context, r request) *raw {
	within, cancel := context.WithTimeout(ctx, s.o.timeout)
	conn, err := dial(within, r.url, s.tls)
	if err != nil {
		cancel()
		end(noAnswer(r, err))
	}
	stop := context.AfterFunc(within, func() { conn.Close() })
	return &raw{conn, r, within, func() { stop(); cancel(); conn.Close() }}
}

func dial(ctx context.Context, target string, trust *tls.Config) (net.Conn, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	if u.Scheme == "https" {
		return (&tls.Dialer{Config: trust}).DialContext(ctx, "tcp", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// halfClose ends the connection in this direction, as far as the server can tell.
func (c *raw) halfClose() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		end(notApplicable("the connection cannot be ended in one direction"))
	}
	if err := half.CloseWrite(); err != nil {
		end(notApplicable(err.Error()))
	}
}

func (c *raw) write(text string) {
	if _, err := io.WriteString(c, text); err != nil {
		end(noAnswer(c.request, err))
	}
}

// head sends a request and reads the head of its answer; the body stays, and the connection ends.
func (s *suite) head(ctx context.Context, r request) http.Header {
	conn := s.dial(ctx, r)
	defer conn.close()
	conn.write(r.start() + "Content-Length: " + strconv.Itoa(len(r.body)) + "\r\n\r\n" + r.body)
	reader := textproto.NewReader(bufio.NewReader(conn))
	for {
		status, err := reader.ReadLine()
		if err != nil {
			end(noAnswer(r, err))
		}
		header, err := reader.ReadMIMEHeader()
		if err != nil {
			end(noAnswer(r, err))
		}
		switch _, code, _ := strings.Cut(status, " "); {
		case strings.HasPrefix(code, "1"): // the answer is still to come
		case strings.HasPrefix(code, "2"):
			return http.Header(header)
		default:
			end(&failure{r.String(), status, "a 2xx: the key is new"})
		}
	}
}

// start is the request line and headers, but those of the body's length, as the wire has them.
func (r request) start() string {
	u, err := url.Parse(r.target())
	if err != nil {
		return "" // the options were checked
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nContent-Type: %s\r\n", r.method, u.RequestURI(), u.Host,
		agent, r.contentType)
	for _, header := range r.extra {
		fmt.Fprintf(&b, "%s: %s\r\n", header.name, header.value)
	}
	for _, key := range r.keys {
		fmt.Fprintf(&b, "%s: %s\r\n", r.keyHeader, key)
	}
	return b.String()
}
