package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
)

// serviceLink is the form of the variables that Kubernetes sets for its services, of which some may
// be called coatcheck, or coatcheck-gateway.
var serviceLink = lazyregexp.New(`^COATCHECK_(?:[A-Z0-9_]+_)?(?:SERVICE_HOST=|SERVICE_PORT(?:_[A-Z0-9_]+)?=|` +
	`PORT=(?:tcp|udp|sctp)://|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_PROTO|_PORT|_ADDR)?=)`)

// strangers are warnings of variables that begin as ours do and are no setting's, and no argument
// of a call is taken from them.
func strangers(environ []string) (warnings []string) {
	var known []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, config.Variables) || serviceLink().MatchString(variable) {
			continue
		}
		if known == nil {
			known = variables()
		}
		if slices.Contains(known, name) {
			continue
		}
		warning := "the variable " + name + " is no setting, and is ignored"
		if near := names.Nearest(name, known, max(2, (len(name)-len(config.Variables))/3)); near != "" {
			warning += fmt.Sprintf("; is %s meant?", near)
		}
		warnings = append(warnings, warning)
	}
	return warnings
}

// variables are the names of all settings' variables.
func variables() []string {
	list := []string{config.Variables + "CONFIG"}
	for _, setting := range allSettings() {
		list = append(list, setting.Variable())
	}
	return list
}

// allSettings are those of connections, of the store and of the process, whatever command has them.
func allSettings() []*config.Setting {
	return slices.Concat(
		config.ServiceSettings(&config.Service{}), config.GatewaySettings(&config.Gateway{Service: &config.Service{}}),
		new(serviceAt).settings(), new(leafFlags).databases(), new(leafFlags).settings(), new(tagMove).databases())
}
