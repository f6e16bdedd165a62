package cli

import "strings"

// whoMayAsk says in a line who may ask the service for something.
func (c *config) whoMayAsk() string {
	var who []string
	if c.access != "" {
		who = append(who, "keys and certificates of "+c.access)
	}
	if len(c.accessKeys) > 0 {
		who = append(who, "keys of COATCHECK_ACCESS_KEYS")
	}
	if c.accessStore {
		who = append(who, "keys in Redis (coatcheck key add)")
	}
	switch {
	case len(who) > 0:
		return strings.Join(who, ", ")
	case c.tlsClientCA != "" && c.tlsClientAuth == requireCertificate:
		return "everybody with a certificate of " + c.tlsClientCA + " may do everything"
	}
	return "everybody who reaches it may do everything (--access asks for keys)"
}

// curl is how the service is asked by hand.
func (c *config) curl() string {
	curl := "curl"
	if c.tlsCert != "" {
		curl += " --cacert CA.pem"
	}
	if c.controlled() {
		curl += ` -H "Authorization: Bearer $COATCHECK_API_KEY"`
	}
	return curl
}
