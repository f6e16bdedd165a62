package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/internal/version"
)

// The bill follows the specification of CycloneDX 1.6. It holds no time and no number of its own,
// so that the bill of one binary is always the same.

type bill struct {
	Format       string       `json:"bomFormat"`   //nolint:tagliatelle // CycloneDX's names
	SpecVersion  string       `json:"specVersion"` //nolint:tagliatelle // the same
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"` //nolint:tagliatelle // the same
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl"`
	Licences   []licensed `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type licensed struct {
	Licence struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn,omitempty"` //nolint:tagliatelle // the same
}

// printBill prints the bill of a binary: what the Go tool wrote into it. Licences are those of the
// modules that this repository uses now, where the version is the same.
func printBill(ctx context.Context, root, binary string, out io.Writer) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	all, err := licencesOf(ctx, root, targetOf(info))
	if err != nil {
		return err
	}
	info.Main.Version = "v" + version.Version
	known := map[string][]string{}
	for _, one := range all {
		known[one.path+"@"+one.version] = one.licences
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(billOf(info, known))
}

// targetOf is what a binary was built for.
func targetOf(info *debug.BuildInfo) target {
	t := linux
	for _, setting := range info.Settings {
		switch setting.Key {
		case "GOOS":
			t.os = setting.Value
		case "GOARCH":
			t.arch = setting.Value
		}
	}
	return t
}

// billOf makes a bill of what is in a binary, with the licences of modules by path@version.
func billOf(info *debug.BuildInfo, licences map[string][]string) bill {
	main := componentOf("application", info.Main.Path, info.Main.Version)
	main.Licences = licencesIn([]string{"Apache-2.0"})
	for _, setting := range info.Settings {
		if slices.Contains([]string{"vcs.revision", "vcs.modified", "GOOS", "GOARCH", "CGO_ENABLED", "-trimpath"}, setting.Key) {
			main.Properties = append(main.Properties, property{"build:" + setting.Key, setting.Value})
		}
	}
	standard := componentOf("library", "stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	standard.Licences = licencesIn([]string{"BSD-3-Clause"})
	b := bill{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{main}, Components: []component{standard}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		one := componentOf("library", m.Path, m.Version)
		one.Licences = licencesIn(licences[m.Path+"@"+m.Version])
		if m.Sum != "" {
			one.Properties = []property{{"go:sum", m.Sum}}
		}
		b.Components = append(b.Components, one)
	}
	for _, m := range vendored {
		url := "pkg:" + m.path + "@" + m.version
		b.Components = append(b.Components, component{
			Ref: url, Type: "library", Name: m.path, Version: m.version, PURL: url,
			Licences: licencesIn(licences[m.path+"@"+m.version]),
		})
	}
	whole := dependency{Ref: main.Ref}
	for _, one := range b.Components {
		whole.On = append(whole.On, one.Ref)
	}
	b.Dependencies = []dependency{whole}
	return b
}

func componentOf(kind, path, version string) component {
	// A package URL: lower case, and a plus is written as %2B.
	url := fmt.Sprintf("pkg:golang/%s@%s", strings.ToLower(path), strings.ReplaceAll(version, "+", "%2B"))
	if version == "" || version == "(devel)" {
		url, _, _ = strings.Cut(url, "@")
	}
	return component{Ref: url, Type: kind, Name: path, Version: version, PURL: url}
}

func licencesIn(names []string) (all []licensed) {
	for _, name := range names {
		one := licensed{}
		one.Licence.ID = name
		all = append(all, one)
	}
	return all
}
