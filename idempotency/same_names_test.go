package idempotency

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Every ingredient of an operation's name, and of its fingerprint.
func TestNamesOfOperationsAreFixed(t *testing.T) {
	request := func(body string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/orders/a%2Fb^c?x=1", strings.NewReader(body))
		r.Host = "shop.example"
		for name, value := range map[string]string{"Authorization": "Bearer one", "X-User-Id": "ann", "Content-Type": "application/json"} {
			r.Header.Set(name, value)
		}
		return r
	}
	principal := func(headers ...string) string {
		who, err := HeaderPrincipal(headers...)(request(""))
		if err != nil {
			t.Fatal(err)
		}
		return who
	}
	fingerprint := func(route Route) string {
		sum, err := takeBody(request(`{"b": 1.0, "a": "é"}`), "POST /orders/{id}", route.WithDefaults())
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	for what, row := range map[string][2]string{
		"the principal by Authorization":     {principal("Authorization"), "qYzMK3fJs8HVVfC_syiJ2uw7X1qSKC_v"},
		"the principal by two headers":       {principal("x-user-id", "Host"), "vPLyRQQkNiSNUf8kQpJ2L2m3hXVANY94"},
		"the principal by no header":         {principal(), ""},
		"the principal by a header not sent": {principal("X-Other"), ""},
		"an issued token":                    {IssuedToken("ann", "token").Operation(), "Np0vk2SPTwJMO2adIF9TSMMj9jp-ljd4"},
		"a client's key":                     {Key{Principal: "ann", Scope: "POST /orders/{id}", ID: "key"}.Operation(), "cffCDiw0VRqbwCTiphmX8Ztfm-PApVJx"},
		"a client's key of nobody":           {Key{ID: "key"}.Operation(), "uD4LIPrFAoy2kPqogKm_6pou4SKTnA5X"},
		"a fingerprint":                      {fingerprint(Route{}), "y4trH2E-fKLkD21Q8ThSO2wQFxqARCx75uE03RYCdzc"},
		"a fingerprint with headers":         {fingerprint(Route{Headers: []string{"x-user-id", "Host", "X-Other"}}), "a6NdcT5-HL6egKwSe3MmKebBLiDOlGXMl-QlaJjravc"},
		"a fingerprint of canonical JSON":    {fingerprint(Route{CanonicalJSON: true}), "zt--un3bPswscxCiipU3NvmV19gcRHAZwG1NiH3zOa4"},
		"the digest of a settlement":         {Settlement{Decision: DecisionHappened, Answer: Answer{Status: 201, Header: http.Header{"A": {"b", "c"}}, Body: []byte("d")}}.digest(), "5vSjj4NVhqtiGCtTGIkF1hOIctIYPMwD"},
	} {
		expect.SameName(t, names.Version, what, row[0], row[1])
	}
}
