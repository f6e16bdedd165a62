package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
)

// serviceLink is the form of the variables that Kubernetes sets for its services, of which some may
// be called coatcheck, or coatcheck-gateway.
var serviceLink = lazyregexp.New(`^COATCHECK_(?:[A-Z0-9_]+_)?(?:SERVICE_HOST=|SERVICE_PORT(?:_[A-Z0-9_]+)?=|` +
	`PORT=(?:tcp|udp|sctp)://|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_PROTO|_PORT|_ADDR)?=)`)

// strangers are warnings of variables that begin as ours do and are no setting's, and no argument
// of a call is taken from them. flags are those of the command.
func strangers(environ []string, flags *pflag.FlagSet) (warnings []string) {
	var known []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, config.Variables)
		if !ours || serviceLink().MatchString(variable) {
			continue
		}
		if known == nil {
			known = settingNames()
		}
		if slices.ContainsFunc(known, func(setting string) bool { return config.Variable(setting) == name }) {
			continue
		}
		warning := "the variable " + name + " is no setting, and is ignored"
		flag := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		if flags.Lookup(flag) != nil {
			warning += config.IsArgument(flag)
		} else if near := names.Nearest(flag, known); near != "" {
			warning += fmt.Sprintf("; is %s meant?", config.Variable(near))
		}
		warnings = append(warnings, warning)
	}
	return warnings
}

// settingNames are the names of all settings that have a variable.
func settingNames() []string {
	list := []string{"config"}
	for _, setting := range allSettings() {
		list = append(list, setting.Name)
	}
	return list
}

// allSettings are those of connections, of the store and of the process, whatever command has them.
func allSettings() []*config.Setting {
	return slices.Concat(
		config.ServiceSettings(&config.Service{}), config.GatewaySettings(&config.Gateway{Service: &config.Service{}}),
		new(serviceAt).settings(), new(leafFlags).databases(), new(leafFlags).settings(), new(tagMove).databases())
}
