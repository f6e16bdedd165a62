package cli

import (
	"strings"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

// whoMayAsk is the banner's line about the callers that the service admits.
func whoMayAsk(c *config.Service) string {
	var who []string
	if c.Access.File != "" {
		who = append(who, "keys and certificates of "+c.Access.File)
	}
	if len(c.Access.Keys) > 0 {
		who = append(who, "keys of COATCHECK_ACCESS_KEYS")
	}
	if c.AccessStore {
		who = append(who, "keys in Redis (coatcheck key add)")
	}
	switch {
	case len(who) > 0:
		return strings.Join(who, ", ")
	case c.TLSClientCA != "" && c.TLSClientAuth == config.RequireCertificate:
		return "every client with a certificate of " + c.TLSClientCA + " may do everything"
	}
	return "every caller may do everything (--access asks for keys)"
}

func curlOf(c *config.Service) string {
	curl := "curl"
	if c.TLSCert != "" {
		curl += " --cacert CA.pem"
	}
	if c.Controlled() {
		curl += ` -H "Authorization: Bearer $COATCHECK_API_KEY"`
	}
	return curl
}
