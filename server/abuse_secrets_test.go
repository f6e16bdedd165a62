package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/server"
)

// A lease is ended by its secret, and by no key alone; no answer, event or line of the log shows
// that secret to other callers.
func TestLeaseSecretsAreNeededToEndALease(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{Dev: true}, map[string]access.Record{"thief": {Role: access.Use, Principal: "thief"}})
	token := decode[api.TokenIssued](t, g.as(t, "use", "POST", "/token", ""), 201).Token
	claim := decode[api.Claimed](t, g.as(t, "use", "POST", "/token/"+token+"/claim", forAnHour), 200).Lease
	lock := decode[api.LockGranted](t, g.as(t, "use", "POST", "/lock/l", `{"ttl_ms":3600000,"owner":"me"}`), 201)
	worker := decode[api.WorkerLease](t, g.as(t, "use", "POST", "/worker/p", `{"ttl_ms":3600000}`), 201)

	for _, caller := range []string{"thief", "use", "admin", "read"} {
		for _, shown := range []string{"", "Lease-Token: guess", "Lease-Token: " + strings.Repeat("A", 22), "Lease-Token: " + token, "Lease-Token: " + g.keys["use"].Text(), fmt.Sprintf("Lease-Token: %d", lock.Fence)} {
			for _, request := range []call{
				{method: "DELETE", path: "/lock/l"},
				{method: "PUT", path: "/lock/l"},
				{method: "DELETE", path: fmt.Sprintf("/worker/p/%d", worker.WorkerID)},
				{method: "PUT", path: fmt.Sprintf("/worker/p/%d", worker.WorkerID)},
				{method: "POST", path: "/token/" + token + "/complete", body: `{"status":200}`},
				{method: "POST", path: "/token/" + token + "/extend"},
				{method: "POST", path: "/token/" + token + "/release"},
			} {
				var header []string
				if shown != "" {
					header = append(header, shown)
				}
				if a := g.as(t, caller, request.method, request.path, request.body, header...); a.status < 400 || a.status > 499 {
					t.Errorf("by %s: %v; want a refusal", caller, a)
				}
			}
		}
	}
	for _, caller := range []string{"use", "thief", "read", "anonymous"} {
		if a := g.as(t, caller, "DELETE", fmt.Sprintf("/lock/l?force=%d", lock.Fence), ""); a.status != 403 && a.status != 401 {
			t.Errorf("by %s: %v; want status 401 or 403", caller, a)
		}
	}
	// As another principal the token is unknown, with its secret too.
	for _, row := range []call{
		{method: "GET", path: "/token/" + token},
		{method: "POST", path: "/token/" + token + "/claim", body: `{"fingerprint":"f"}`},
		{method: "POST", path: "/token/" + token + "/complete", body: `{"status":200}`, header: []string{"Lease-Token: " + claim}},
		{method: "POST", path: "/token/" + token + "/release", header: []string{"Lease-Token: " + claim}},
	} {
		checkProblem(t, g.as(t, "thief", row.method, row.path, row.body, row.header...), api.TokenUnknown)
	}
	var told strings.Builder
	for _, path := range []string{"/lock", "/lock/l", "/worker", "/worker/p", "/counter", "/idempotency-policy", "/payments", "/metrics", "/readyz", "/"} {
		told.Write(g.as(t, "admin", "GET", path, "").body)
	}
	told.WriteString(g.log.String())
	for what, secret := range map[string]string{"claim": claim, "lock": lock.Lease, "worker id": worker.Lease, "token": token, "key": g.keys["use"].Text()} {
		if strings.Contains(told.String(), secret) {
			t.Errorf("the secret of the %s, %s, is told in an answer or the log:\n%s", what, secret, told.String())
		}
	}
	for _, end := range []call{
		{method: "DELETE", path: "/lock/l", header: []string{"Lease-Token: " + lock.Lease}},
		{method: "DELETE", path: fmt.Sprintf("/worker/p/%d", worker.WorkerID), header: []string{"Lease-Token: " + worker.Lease}},
		{method: "POST", path: "/token/" + token + "/complete", body: `{"status":200}`, header: []string{"Lease-Token: " + claim}},
	} {
		g.as(t, "use", end.method, end.path, end.body, end.header...).wantStatus(t, 204)
	}
}
