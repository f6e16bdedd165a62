package gateway

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var auditLine = regexp.MustCompile(`(?m)^.*msg=audit (.*?)(?: request_id=\S+)?$`)

// auditLines are the lines that say who was refused, without their request ids.
func (r *rig) auditLines() (lines []string) {
	for _, line := range auditLine.FindAllStringSubmatch(r.log.String(), -1) {
		lines = append(lines, line[1])
	}
	return lines
}

// What the gateway refuses by itself has a line that says from where, which route and why; what it
// passes, replays or has others wait for has none.
func TestRefusalsOfTheGatewayHaveALine(t *testing.T) {
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments)
	s.spend("Zkey")
	s.spend("Zkey")
	s.do("GET", "/Zopen", "")
	s.do("POST", "/payments", "x")
	s.do("POST", "/payments", "x", "Idempotency-Key: Zkey,")
	s.do("POST", "/payments", "other", "Idempotency-Key: Zkey")
	s.do("POST", "/payments", "x", "Idempotency-Token: Zunknown")
	s.do("POST", "/payments", "x", "Idempotency-Key: Zother", "Connection: Upgrade", "Upgrade: Zsocket")
	s.wantEnd()
	from := "action=refused address=127.0.0.1 "
	expect.Equal(t, "lines that say who was refused", s.auditLines(), []string{
		from + `route="POST /payments" code=idempotency-key-missing`,
		from + `route="POST /payments" code=idempotency-key-malformed`,
		from + `route="POST /payments" code=idempotency-payload-mismatch`,
		from + `route="POST /payments" code=idempotency-token-unknown`,
		from + `route="POST /payments" code=invalid-request`,
	})
	if regexp.MustCompile(`Z(key|open|unknown|other|socket)`).MatchString(s.log.String()) {
		t.Errorf("the log holds what a client chose:\n%s", s.log)
	}
}

func TestAccessLogOfTheGatewayHasTheRequestsThatItIsToHave(t *testing.T) {
	upstream := newShop(t, nil)
	for mode, want := range map[string][]string{
		"":          {"msg=request /payments"},
		"no-health": {"msg=request /payments"},
		"all":       {"msg=request /payments", `msg="admin request" /livez`, `msg="admin request" /metrics`},
		"none":      nil,
	} {
		s := serve(t, upstream.URL, "routes: [{match: /payments}, {match: /, guard: false}]", func(c *Config) { c.AccessLog = mode })
		s.spend("a")
		s.side("/livez")
		s.side("/metrics")
		s.wantEnd()
		var got []string
		for _, line := range regexp.MustCompile(`(msg=request|msg="admin request") .*route=(\S+) .*address=127.0.0.1`).FindAllStringSubmatch(s.log.String(), -1) {
			got = append(got, line[1]+" "+line[2])
		}
		expect.Equal(t, "the access log of mode "+mode, got, want)
	}
}

// The address is the connection's, unless the gateway trusts what the proxy in front writes: then
// it is the last one there, which that proxy has seen.
func TestAddressIsOfTheConnectionOrOfATrustedProxy(t *testing.T) {
	for _, row := range []struct {
		trusted bool
		header  []string
		want    string
	}{
		{false, nil, "192.0.2.7"},
		{false, []string{"198.51.100.1"}, "192.0.2.7"},
		{true, nil, "192.0.2.7"},
		{true, []string{"198.51.100.1"}, "198.51.100.1"},
		{true, []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{true, []string{"203.0.113.9", "198.51.100.1"}, "198.51.100.1"},
		{true, []string{"2001:db8::1"}, "2001:db8::1"},
		{true, []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{true, []string{"Zsecret"}, "192.0.2.7"},
	} {
		g := &Gateway{config: Config{TrustForwarded: row.trusted}}
		r := &http.Request{RemoteAddr: "192.0.2.7:4711", Header: http.Header{"X-Forwarded-For": row.header}}
		expect.Equal(t, "the address of a request", g.addressOf(r), row.want)
	}
}
