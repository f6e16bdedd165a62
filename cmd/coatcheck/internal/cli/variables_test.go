package cli

import (
	"os/exec"
	"testing"

	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestVariablesThatAreNoSettingAreWarnedOf(t *testing.T) {
	flags := pflag.NewFlagSet("incr", pflag.ContinueOnError)
	flags.String("ttl", "", "")
	for variable, want := range map[string][]string{
		"COATCHECK_STORE_TIMEOUTS=1s":  {"the variable COATCHECK_STORE_TIMEOUTS is no setting, and is ignored; is COATCHECK_STORE_TIMEOUT meant?"},
		"COATCHECK_REQUEST_ID=a":       {"the variable COATCHECK_REQUEST_ID is no setting, and is ignored"},
		"COATCHECK_PORT=8080":          {"the variable COATCHECK_PORT is no setting, and is ignored"},
		"COATCHECK_PORTS_8080_TCP=x":   {"the variable COATCHECK_PORTS_8080_TCP is no setting, and is ignored"},
		"COATCHECK_REIDS=redis://":     {"the variable COATCHECK_REIDS is no setting, and is ignored; is COATCHECK_REDIS meant?"},
		"COATCHECK_FOO=x":              {"the variable COATCHECK_FOO is no setting, and is ignored"},
		"COATCHECK_TTL=3s":             {"the variable COATCHECK_TTL is no setting, and is ignored: it is an argument of one call, which the flag --ttl says"},
		"COATCHECK_STORE_TIMEOUT=soon": nil, "COATCHECK_CONFIG=x": nil, "COATCHECK_UPSTREAM=x": nil, "COATCHECK_SQL=x": nil, "COATCHECK_API_KEY=x": nil, "HOME=/": nil,
		// those of Kubernetes, for services that are called coatcheck and coatcheck-gateway
		"COATCHECK_SERVICE_HOST=10.0.0.1": nil, "COATCHECK_SERVICE_PORT=8080": nil, "COATCHECK_SERVICE_PORT_HTTPS=8443": nil, "COATCHECK_PORT=tcp://10.0.0.1:8080": nil,
		"COATCHECK_PORT_8080_TCP=tcp://10.0.0.1:8080": nil, "COATCHECK_PORT_8080_TCP_PROTO=tcp": nil, "COATCHECK_PORT_8080_TCP_PORT=8080": nil, "COATCHECK_PORT_53_UDP_ADDR=10.0.0.1": nil,
		"COATCHECK_GATEWAY_SERVICE_HOST=10.0.0.1": nil, "COATCHECK_GATEWAY_PORT=tcp://10.0.0.1:8081": nil, "COATCHECK_GATEWAY_PORT_8081_TCP_ADDR=10.0.0.1": nil,
	} {
		got := strangers([]string{variable}, flags)
		expect.Equal(t, "warnings of "+variable, len(got), len(want))
		for i := range min(len(got), len(want)) {
			expect.Equal(t, "the warning of "+variable, got[i], want[i])
		}
	}
}

func TestCommandsSayWhichVariablesTheyIgnore(t *testing.T) {
	t.Parallel()
	server := serve(t).banner.URL
	with := []string{"COATCHECK_SERVER=" + server, "COATCHECK_TTL=3s", built(t)}
	ran := startCommand(t, exec.Command("env", append(with, "lock", "run", "job", "--", "true")...))
	ran.exits(done)
	expect.Contains(t, "what lock run says", ran.stderr.String(), "coatcheck: the variable COATCHECK_TTL is no setting, and is ignored: it is an argument")
}

func TestUnknownFlagNamesTheOneThatWasMeant(t *testing.T) {
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"incr", "a", "--reqest-id", "x"}, "unknown flag: --reqest-id; is --request-id meant?"},
		{[]string{"serve", "--admin"}, "unknown flag: --admin\n"},
		{[]string{"serve", "--max-bodybytes", "1"}, "is --max-body-bytes meant?"},
		{[]string{"token", "show", "--jsn"}, "is --json meant?"},
		{[]string{"serve", "--lissten", ":1"}, "is --listen meant?"},
		{[]string{"lock", "run", "--tlt", "3s", "a", "--", "true"}, "is --ttl meant?"},
		{[]string{"incr", "a", "--xy", "1"}, "unknown flag: --xy\n"},
		{[]string{"incr", "a", "--colour-of-the-sky"}, "unknown flag: --colour-of-the-sky\n"},
	} {
		execute(t, nil, row.args...).exits(usage, row.want)
	}
}
