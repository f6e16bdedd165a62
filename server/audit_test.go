package server_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

var (
	auditLine = regexp.MustCompile(`(?m)^.*msg=audit (.*)$`)
	requestID = regexp.MustCompile(` request_id=\S+`)
)

// auditLines are the lines that say who did what, without their request ids.
func (s *service) auditLines() (lines []string) {
	for _, line := range auditLine.FindAllStringSubmatch(s.log.String(), -1) {
		lines = append(lines, requestID.ReplaceAllString(line[1], ""))
	}
	return lines
}

func TestEveryChangeHasALineThatSaysWho(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, nil)
	secrets := g.change(t)
	who := func(caller string) string {
		return fmt.Sprintf("principal=%s key_id=%s address=127.0.0.1", strings.ReplaceAll(caller, " ", "-"), g.keys[caller].ID)
	}
	expect.Equal(t, "the lines that say who did what", g.auditLines(), []string{
		`action=counter.set name=invoices ` + who("admin") + ` route="PUT /counter/{key}"`,
		`action=counter.removed name=invoices ` + who("admin") + ` route="DELETE /counter/{key}"`,
		`action=pool.created name=orders ` + who("admin") + ` route="PUT /worker/{pool}"`,
		`action=refused name=orders ` + who("admin") + ` route="PUT /worker/{pool}" code=pool-exists`,
		`action=worker.granted name=orders ` + who("use") + ` route="POST /worker/{pool}"`,
		`action=worker.released name=orders ` + who("use") + ` route="DELETE /worker/{pool}/{worker_id}"`,
		`action=lock.broken name=ledger ` + who("admin") + ` route="DELETE /lock/{name}"`,
		`action=refused name=ledger ` + who("admin") + ` route="DELETE /lock/{name}" code=not-found`,
		`action=limit.returned name=sms ` + who("admin") + ` route="POST /limit/{name}"`,
		`action=operation.released ` + who("use") + ` route="POST /token/{token}/release"`,
	})
	for _, secret := range secrets {
		if strings.Contains(g.log.String(), secret) {
			t.Errorf("the log holds the secret %q:\n%s", secret, g.log)
		}
	}
}

// change does what changes something, and returns the secrets that were in it.
func (g *keyed) change(t *testing.T) (secrets []string) {
	t.Helper()
	g.as(t, "admin", "PUT", "/counter/invoices", `{"value":7}`).wantStatus(t, 200)
	// what hands out values has no line
	g.as(t, "use", "POST", "/incr/invoices", "").wantStatus(t, 200)
	g.as(t, "admin", "DELETE", "/counter/invoices", "").wantStatus(t, 204)
	g.as(t, "admin", "PUT", "/worker/orders", "").wantStatus(t, 201)
	g.as(t, "admin", "PUT", "/worker/orders", "").wantStatus(t, 409)
	worker := decode[api.WorkerLease](t, g.as(t, "use", "POST", "/worker/orders", ""), 201)
	g.as(t, "use", "PUT", "/worker/orders/0", "", "Lease-Token: "+worker.Lease).wantStatus(t, 200)
	g.as(t, "use", "DELETE", "/worker/orders/0", "", "Lease-Token: "+worker.Lease).wantStatus(t, 204)
	lock := decode[api.LockGranted](t, g.as(t, "use", "POST", "/lock/ledger", `{"ttl_ms":3600000}`), 201)
	force := fmt.Sprintf("/lock/ledger?force=%d", lock.Fence)
	g.as(t, "admin", "DELETE", force, "").wantStatus(t, 200)
	g.as(t, "admin", "DELETE", force, "").wantStatus(t, 404)
	for cost, caller := range map[int]string{4: "use", -1: "admin", 0: "use"} {
		g.as(t, caller, "POST", "/limit/sms", fmt.Sprintf(perHour, cost)).wantStatus(t, 200)
	}
	token := decode[api.TokenIssued](t, g.as(t, "use", "POST", "/token", ""), 201).Token
	claim := decode[api.Claimed](t, g.as(t, "use", "POST", "/token/"+token+"/claim", forAnHour), 200).Lease
	g.as(t, "use", "POST", "/token/"+token+"/release", "", "Lease-Token: "+claim).wantStatus(t, 204)
	secrets = []string{worker.Lease, lock.Lease, token, claim}
	for _, key := range g.keys {
		_, secret, _ := strings.Cut(strings.TrimPrefix(key.Text(), "cck_"), "_")
		secrets = append(secrets, key.Text(), secret)
	}
	return secrets
}

func TestEveryRefusalHasALineThatSaysWho(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{TinyidTokens: []server.TinyidToken{{BizType: "t", Token: "Ztoken"}}}, map[string]access.Record{"slow": hourly})
	id := func(caller string) string { return g.keys[caller].ID }
	g.keys["guess"] = access.Key{ID: id("use"), Secret: access.NewKey().Secret}
	for range 5 {
		g.as(t, "slow", "POST", "/incr/k", "").wantStatus(t, 200)
	}
	for _, row := range []struct {
		caller, method, path string
		want                 string // of the line
	}{
		{"anonymous", "PUT", "/counter/Zname", `address=127.0.0.1 route="PUT /counter/{key}" code=unauthorized`},
		{"wrong", "PUT", "/counter/Zname", `address=127.0.0.1 route="PUT /counter/{key}" code=unauthorized`},
		{"guess", "PUT", "/counter/Zname", `key_id=` + id("use") + ` address=127.0.0.1 route="PUT /counter/{key}" code=unauthorized`},
		{"read", "PUT", "/counter/k", `name=k principal=read key_id=` + id("read") + ` address=127.0.0.1 route="PUT /counter/{key}" code=forbidden`},
		{"own", "POST", "/incr/bills", `name=bills principal=own key_id=` + id("own") + ` address=127.0.0.1 route="POST /incr/{key}" code=forbidden`},
		{"use", "DELETE", "/lock/l?force=1", `name=l principal=use key_id=` + id("use") + ` address=127.0.0.1 route="DELETE /lock/{name}" code=forbidden`},
		{"slow", "POST", "/incr/k", `name=k principal=slow key_id=` + id("slow") + ` address=127.0.0.1 route="POST /incr/{key}" code=too-many-requests`},
		{"anonymous", "GET", "/api/segment/get/Zname", `address=127.0.0.1 route="GET /api/segment/get/{key}" code=unauthorized`},
		{"own", "GET", "/api/segment/get/bills", `name=bills principal=own key_id=` + id("own") + ` address=127.0.0.1 route="GET /api/segment/get/{key}" code=forbidden`},
		{"anonymous", "GET", "/tinyid/id/nextId?bizType=t&token=Zwrong", `address=127.0.0.1 route="GET /tinyid/id/nextId" code=unauthorized`},
		{"own", "GET", "/tinyid/id/nextId?bizType=t", `principal=own key_id=` + id("own") + ` address=127.0.0.1 route="GET /tinyid/id/nextId" code=forbidden`},
	} {
		before := len(g.auditLines())
		g.as(t, row.caller, row.method, row.path, "")
		expect.Equal(t, row.caller+": "+row.method+" "+row.path+": lines of the audit", g.auditLines()[before:], []string{"action=refused " + row.want})
	}
	g.as(t, "use", "GET", "/counter/none", "").wantStatus(t, 404) // which is no refusal
	expect.Equal(t, "lines of the audit", len(g.auditLines()), 11)
	for _, chosen := range []string{"Zname", "Zwrong", "Ztoken", id("wrong")} {
		if strings.Contains(g.log.String(), chosen) {
			t.Errorf("the log holds what a stranger chose, %q:\n%s", chosen, g.log)
		}
	}
}

func TestAuditWithoutNamesAndWithoutLines(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		"no-names": {`action=counter.set address=127.0.0.1 route="PUT /counter/{key}"`},
		"none":     nil,
	} {
		s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), AuditLog: mode})
		s.do(t, "PUT", "/counter/Zname", `{"value":7}`).wantStatus(t, 200)
		expect.Equal(t, "lines of mode "+mode, s.auditLines(), want)
		expect.Equal(t, "the log of mode "+mode+" holds the name", strings.Contains(s.log.String(), "Zname"), false)
	}
}

func TestAccessLogHasTheRequestsThatItIsToHave(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{
		"":          {"/incr/{key}", "/worker/{pool}"},
		"no-health": {"/incr/{key}", "/worker/{pool}"},
		"all":       {"/livez", "/readyz", "/metrics", "/incr/{key}", "/worker/{pool}"},
		"none":      nil,
	} {
		s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), AccessLog: mode})
		for _, path := range []string{"/livez", "/readyz", "/metrics", "/incr/k", "/worker/p"} {
			s.do(t, http.MethodGet, path, "")
		}
		var got []string
		for _, line := range regexp.MustCompile(`msg=request .* route=(\S+) .* address=127.0.0.1`).FindAllStringSubmatch(s.log.String(), -1) {
			got = append(got, line[1])
		}
		expect.Equal(t, "routes in the access log of mode "+mode, got, want)
	}
}
