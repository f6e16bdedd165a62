package cli

import (
	"io"
	"net/http"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	ours "github.com/coatcheck/coatcheck/internal/version"
)

// The command, in both ways, the service and the gateway tell the version of the tree.
func TestAllTellTheVersion(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		expect.Contains(t, args[0], execute(t, nil, args...).exits(done).stdout, "coatcheck "+ours.Version+" (")
	}
	for _, name := range []string{"version", "--version"} {
		var told versions
		execute(t, nil, name, "--json").exits(done).into(&told)
		expect.Equal(t, name+" --json", told, version())
	}
	answer, err := http.Get(serve(t).banner.URL + "/livez")
	expect.MustEqual(t, "error of GET /livez", err, nil)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	expect.MustEqual(t, "error of its body", err, nil)
	expect.Contains(t, "/livez", string(body), `"version":"`+ours.Version+`"`)
}
