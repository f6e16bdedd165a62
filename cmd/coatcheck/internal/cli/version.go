package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	ours "github.com/coatcheck/coatcheck/internal/version"
)

type versions struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version is that of the tree, and the commit that the Go tool wrote into the binary.
func version() versions {
	v := versions{Version: ours.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Example: "  coatcheck version --json",
		Use:     "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return p.printVersion() },
	}
}

func (p *program) printVersion() error {
	v := version()
	return p.print(v, fmt.Sprintf("coatcheck %s (%s%s, %s)\n", v.Version, strings.TrimLeft(v.Revision+", ", ", "), v.Go, v.Platform))
}
