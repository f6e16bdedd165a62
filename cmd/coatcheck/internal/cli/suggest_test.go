package cli

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestMistypedCommandNamesTheOneThatWasMeant(t *testing.T) {
	for line, want := range map[string]string{
		"lock get": "coatcheck lock ls", "lock relase": "coatcheck lock break, coatcheck lock ls, coatcheck lock run", "lock unlock": "coatcheck lock break",
		"token get": "coatcheck token show", "token shwo": "coatcheck token show", "worker list": "coatcheck worker ls", "counter show": "coatcheck counter get",
	} {
		t.Run(line, func(t *testing.T) {
			execute(t, nil, strings.Fields(line)...).exits(usage, "has no command", "Did you mean: "+want)
		})
	}
}

func TestVersionFlagSaysWhatTheCommandSays(t *testing.T) {
	want := execute(t, nil, "version").exits(done).stdout
	expect.Equal(t, "coatcheck --version", execute(t, nil, "--version").exits(done).stdout, want)
	want = execute(t, nil, "version", "--json").exits(done).stdout
	expect.Equal(t, "coatcheck --version --json", execute(t, nil, "--version", "--json").exits(done).stdout, want)
}
