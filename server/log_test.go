package server_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestLogHasOneLineARequestWithItsTemplateAndItsID(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true, AccessLog: "all"})
	for i, row := range []struct {
		method, path, route string
		status              int
	}{
		{"GET", "/livez", "/livez", 200},
		{"POST", "/incr/orders?by=2", "/incr/{key}", 200},
		{"GET", "/counter/unused", "/counter/{key}", 404},
		{"GET", "/incr/a%2Fb", "/incr/{key}", 400},
		{"PATCH", "/incr/orders", "/incr/{key}", 405},
		{"POST", "/token/never/claim", "/token/{token}/claim", 400},
		{"DELETE", "/worker/p/0", "/worker/{pool}/{worker_id}", 400},
		{"GET", "/nope", `""`, 404},
		{"POST", "/payments", "/payments", 400},
	} {
		id := fmt.Sprintf("id-%d-", i)
		a := s.do(t, row.method, row.path, "", "X-Request-Id: "+id)
		line := s.logLine(t, "request_id="+id)
		for _, part := range []string{"msg=request", "level=INFO", "method=" + row.method, "route=" + row.route + " ", fmt.Sprintf("status=%d", row.status), "duration=", fmt.Sprintf("bytes=%d", len(a.body))} {
			expect.Contains(t, a.asked+": its line in the log", line, part)
		}
	}
}

// Everything that a client chooses or must keep secret goes through every endpoint, well and badly,
// with the store there and away.
func TestLogNeverHoldsWhatAClientChoseOrMustKeepSecret(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Dev: true, Identity: "Zserver"})
	secrets := map[string]string{
		"counter": "Zcounter", "pool": "Zpool", "identity": "Zidentity", "scope": "Zscope", "key": "Zkey", "fingerprint": "Zfingerprint", "answer": "Zanswer",
		"payee": "Zpayee", "lost": "Zlost", "agent": "Zagent", "server": "Zserver",
	}
	secrets["token"] = s.issue(t, `{"scope":"`+secrets["scope"]+`"}`)
	secrets["second token"] = s.issue(t, `{"scope":"payments"}`)
	secrets["lease"] = s.claim(t, secrets["token"], `{"fingerprint":"`+secrets["fingerprint"]+`"}`).Lease
	worker := must[api.WorkerLease](t, s, 201, "POST", "/worker/"+secrets["pool"], `{"identity":"`+secrets["identity"]+`"}`)
	secrets["worker lease"] = worker.Lease
	payment := `{"amount":5,"currency":"EUR","to":"` + secrets["payee"] + `"}`

	walk := func() {
		for _, c := range []call{
			{method: "GET", path: "/incr/Zcounter?by=7", header: []string{"Idempotency-Key: Zkey"}},
			{method: "POST", path: "/incr/Zcounter%2F", header: []string{"Idempotency-Key: Zkey;"}},
			{method: "POST", path: "/incr/Zcounter?Zlost=Zlost", body: `{"Zlost":"Zlost"}`},
			{method: "GET", path: "/counter/Zcounter"},
			{method: "GET", path: "/token/T"},
			{method: "POST", path: "/token/T/claim", body: `{"fingerprint":"Zfingerprint"}`},
			{method: "POST", path: "/token/T/claim", body: `{"fingerprint":"Zlost"}`},
			{method: "POST", path: "/token/T/extend", header: []string{"Lease-Token: L"}},
			{method: "POST", path: "/token/T/extend", header: []string{"Lease-Token: Zlost"}},
			{method: "POST", path: "/token/T/complete", header: []string{"Lease-Token: L"}, body: `{"status":200,"headers":{"Location":"/Zanswer"},"body_base64":"WmFuc3dlcg=="}`},
			{method: "POST", path: "/token/T/release", header: []string{"Lease-Token: L"}},
			{method: "PATCH", path: "/token/T/release", header: []string{"Lease-Token: L"}},
			{method: "GET", path: "/token/T/L"}, // no such path
			{method: "GET", path: "/tokens/T?lease=L"},
			{method: "GET", path: "/problems/T"},
			{method: "GET", path: "/worker/Zpool"},
			{method: "GET", path: "/worker?prefix=Zpool&cursor=Zlost"},
			{method: "PUT", path: "/worker/Zpool", body: `{"layout":"Zlost"}`},
			{method: "PUT", path: "/worker/Zpool"},
			{method: "GET", path: "/id/snowflake/Zpool"},
			{method: "GET", path: "/id/snowflake/Zpool2?n=3"},
			{method: "GET", path: "/id/snowflake/Zpool?format=Zlost"},
			{method: "GET", path: "/id/decode/Zlost?pool=Zpool"},
			{method: "GET", path: "/id/decode/1?pool=Zpool&layout=Zlost"},
			{method: "PUT", path: "/worker/Zpool/0", header: []string{"Lease-Token: W"}, body: `{"identity":"Zidentity","fence":1,"layout":"41/10/12","epoch":"2020-01-01T00:00:00Z","not_after":"2026-01-01T00:00:00Z"}`},
			{method: "POST", path: "/worker/Zpool", body: `{"identity":"Zidentity","layout":"Zlost"}`},
			{method: "PUT", path: "/worker/Zpool/0", header: []string{"Lease-Token: W"}},
			{method: "DELETE", path: "/worker/Zpool/0", header: []string{"Lease-Token: Zlost"}},
			{method: "DELETE", path: "/worker/Zpool/Zlost", header: []string{"Lease-Token: W"}},
			{method: "POST", path: "/payments", body: payment, header: []string{"Idempotency-Token: S"}},
			{method: "POST", path: "/payments", body: payment, header: []string{"Idempotency-Token: T"}},
			{method: "POST", path: "/payments", body: payment, header: []string{"Idempotency-Key: Zkey"}},
			{method: "POST", path: "/payments", body: `{"Zlost":1}`, header: []string{"Idempotency-Key: Zkey"}},
			{method: "POST", path: "/payments", body: payment, header: []string{"Idempotency-Key: Zkey,"}},
			{method: "GET", path: "/payments", header: []string{"User-Agent: Zagent", "Referer: http://x/token/T", "Authorization: Bearer L", "Cookie: T"}},
		} {
			fill := strings.NewReplacer("T", secrets["token"], "S", secrets["second token"], "L", secrets["lease"], "W", secrets["worker lease"])
			c.path = regexp.MustCompile(`\b[TLWS]\b`).ReplaceAllStringFunc(c.path, fill.Replace)
			for i, header := range c.header {
				c.header[i] = regexp.MustCompile(`\b[TLWS]\b$`).ReplaceAllStringFunc(header, fill.Replace)
			}
			if _, err := s.send(t.Context(), c); err != nil {
				t.Fatalf("%v: %v", c, err)
			}
		}
	}
	walk()
	redis.Kill()
	walk()

	// the audit names what was changed
	log := regexp.MustCompile(`(msg=audit .*) name=Zpool `).ReplaceAllString(s.log.String(), "$1 ")
	if lines := strings.Count(log, "msg=request"); lines < 50 {
		t.Errorf("the log has %d lines of requests, want 50 at least:\n%s", lines, log)
	}
	for what, secret := range secrets {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds the %s %q:\n%s", what, secret, log)
		}
	}
}
