package coatcheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

const module = "github.com/coatcheck/coatcheck"

// everything is all of ours but the test helpers.
const everything = "*"

// front is what stands between the network and the domains.
var front = []string{
	"idempotency", "limit", "lock", "workerlease", "segment", "counter", "number", "snowflake", "api", "server/internal/ledger", "internal/secret", "internal/share", "internal/target", "internal/audit", "internal/fault", "internal/frontdoor", "internal/health", "internal/lazyregexp", "internal/names", "internal/redisprobe", "internal/requestlog", "internal/version", "metrics", "redisstore",
}

// domain is what a domain may use: never another domain.
var domain = []string{"redisstore", "internal/class", "internal/fault", "internal/onstore", "internal/pipeline", "scripts", "api", "internal/secret",
	"internal/keepalive", "internal/lazyregexp", "internal/muxpattern", "internal/names", "internal/notifier", "internal/step", "internal/target"}

// layers says for each folder of Go code which of our packages it may import. A new package has to
// be placed here before it compiles in the tests. Some are places kept for packages to come.
var layers = map[string][]string{
	".":                          {},
	"cmd/coatcheck":              {"cmd/coatcheck/internal/cli"},
	"cmd/coatcheck/internal/cli": {everything},
	// only tests start it
	"cmd/coatcheck/internal/named": {"cmd/coatcheck/internal/cli"},

	"server":  append(front, "segment/redissource", "access", "console", "idempotency/echov4", "openapi", "server/internal/compat", "server/internal/events", "server/internal/stamper", "internal/pipeline", "internal/textid"),
	"gateway": append(front, "idempotency/jwtprincipal", "internal/muxpattern", "internal/noupgrade", "internal/step", "internal/watch", "internal/yamlfile"),

	"idempotency": domain,
	// apart from it, so that who has other callers links no library for tokens
	"idempotency/jwtprincipal": {"internal/lazyregexp", "idempotency", "internal/names"},
	// adapts any net/http middleware; of a guard it knows the attempt
	"idempotency/echov4": {"idempotency"},
	"limit":              domain,
	"lock":               domain,
	"workerlease":        append(domain, "workerlease/holder", "internal/holding", "snowflake"),
	"segment":            append(domain, "internal/share"),
	"counter":            domain,
	"snowflake":          {"internal/lazyregexp", "internal/step"},
	"number":             {},
	"access":             append(domain, "limit", "internal/watch", "internal/yamlfile"),
	"console":            {},
	"openapi":            {},

	"doctor": {"redisstore"},

	"metrics":             {"counter", "idempotency", "internal/doubt", "redisstore", "redisstore/observe", "scripts", "segment", "segment/redissource", "workerlease"},
	"segment/redissource": {"counter", "segment", "redisstore", "internal/fault"},
	"redisstore":          {"internal/lazyregexp", "scripts", "internal/driver", "internal/fault", "internal/pipeline", "internal/redisconn", "redisstore/observe"},
	"redisstore/observe":  {},
	"embedded":            {"internal/lazyregexp", "internal/driver"},
	// for the tests of those who use the packages
	"coatchecktest": {"embedded", "idempotency", "redisstore"},
	"scripts":       {"internal/fault"},

	"client": {"api", "workerlease/holder", "internal/class", "internal/holding", "internal/keepalive", "internal/names", "internal/noupgrade", "internal/secret", "snowflake"},

	"examples/agent":   {}, // only tests
	"examples/nightly": {}, // it knows only coatcheck's command
	"examples/queue":   {"idempotency", "redisstore"},

	"chaos":             {}, // only tests
	"chaos/counters":    {}, // only tests
	"chaos/evidence":    {},
	"chaos/ids":         {}, // only tests
	"chaos/locks":       {}, // only tests
	"chaos/outages":     {}, // only tests
	"chaos/prices":      {}, // only tests
	"chaos/proof":       {"chaos/evidence"},
	"chaos/resolvers":   {}, // only tests
	"chaos/segments":    {}, // only tests
	"chaos/servers":     {}, // only tests
	"chaos/soak":        {}, // only tests
	"deploy/containers": {}, // only tests
	"conformance":       {}, // a black box knows nothing of what it looks at

	"workerlease/holder":               {"internal/holding", "internal/keepalive", "internal/secret", "internal/step", "snowflake"},
	"internal/holding":                 {},
	"internal/keepalive":               {"internal/step"},
	"internal/leasesim":                {},
	"server/internal/ledger":           {"internal/onstore", "redisstore", "scripts", "api", "internal/secret"},
	"internal/lazyregexp":              {},
	"internal/names":                   {},
	"internal/muxpattern":              {"internal/lazyregexp", "internal/names"},
	"internal/notifier":                {"internal/pipeline", "internal/step", "redisstore"},
	"internal/secret":                  {"internal/lazyregexp"},
	"internal/target":                  {},
	"internal/version":                 {},
	"internal/share":                   {},
	"internal/step":                    {},
	"internal/audit":                   {"api", "internal/network"},
	"internal/network":                 {},
	"internal/doubt":                   {"idempotency", "redisstore"},
	"cmd/coatcheck/internal/config":    {"internal/lazyregexp", "access", "counter", "embedded", "gateway", "idempotency", "idempotency/jwtprincipal", "internal/audit", "internal/frontdoor", "internal/names", "internal/redisconn", "internal/requestlog", "cmd/coatcheck/internal/tracing", "internal/watch", "internal/yamlfile", "lock", "redisstore", "segment", "server", "snowflake", "workerlease"},
	"server/internal/compat":           {"access", "segment", "snowflake", "workerlease", "metrics", "internal/frontdoor", "internal/names", "server/internal/stamper", "api"},
	"server/internal/events":           {"access", "internal/secret", "internal/share", "internal/step", "api"},
	"internal/frontdoor":               {"internal/lazyregexp", "internal/network", "internal/share"},
	"internal/health":                  {"internal/onstore", "internal/pipeline", "internal/redisconn", "redisstore", "scripts"},
	"cmd/coatcheck/internal/supervise": {},
	"internal/textid":                  {},
	"internal/noupgrade":               {},
	"internal/watch":                   {},
	"api":                              {},
	"internal/yamlfile":                {},

	"internal/driver":     {},
	"internal/postgres":   {},
	"internal/redisconn":  {"internal/lazyregexp"},
	"internal/class":      {},
	"internal/fault":      {"internal/class", "internal/lazyregexp"},
	"internal/onstore":    {"internal/pipeline", "internal/redisconn", "redisstore", "scripts"},
	"internal/pipeline":   {"internal/fault", "internal/redisconn", "internal/step", "redisstore/observe", "scripts"},
	"internal/redisprobe": {"internal/lazyregexp", "doctor", "internal/fault", "internal/onstore", "internal/redisconn", "redisstore"},
	"internal/requestlog": {"internal/names", "internal/secret"},
	// a package that makes spans takes a tracer; this one place sends them
	"cmd/coatcheck/internal/tracing": {"internal/noupgrade", "redisstore", "redisstore/observe"},

	"server/internal/stamper": {"internal/fault", "workerlease/holder", "internal/share", "internal/step", "redisstore", "snowflake", "workerlease"},

	"chaos/internal/chaostest": {"chaos/evidence", "internal/testing/proctest", "internal/testing/redistest", "redisstore"},
	"chaos/internal/locking":   {"chaos/internal/chaostest"},

	"internal/testing/apitest":    {"openapi"},
	"internal/testing/expect":     {},
	"internal/testing/leftover":   {},
	"internal/testing/logtest":    {},
	"internal/testing/proctest":   {},
	"internal/testing/redistest":  {"internal/testing/proctest"},
	"internal/testing/recordtest": {"scripts"},
	"internal/testing/sqltest":    {"internal/postgres", "internal/testing/proctest"},
	"internal/testing/storetest":  {"embedded", "internal/onstore", "internal/redisprobe", "internal/testing/redistest", "internal/step", "redisstore"},

	"internal/testing/engines": {"internal/testing/redistest"},
	"internal/testing/issuer":  {},
	"internal/testing/walk":    {"internal/step"},
}

// testHelpers may be imported by tests and by each other.
var testHelpers = []string{"chaos/internal/chaostest", "chaos/internal/locking", "internal/testing/apitest", "internal/testing/expect",
	"internal/testing/leftover", "internal/testing/logtest", "internal/testing/proctest", "internal/testing/recordtest", "internal/testing/redistest", "internal/testing/sqltest", "internal/testing/storetest", "internal/testing/engines", "internal/testing/issuer", "internal/testing/walk"}

// libraries that only some folders may know, so that one place changes when they do.
var libraries = map[string][]string{
	"github.com/labstack/echo":            {"server", "idempotency/echov4", "server/internal/compat"},
	"github.com/prometheus/client_golang": {"metrics", "gateway"},
	"github.com/redis/go-redis": {"redisstore", "coatchecktest", "internal/fault", "internal/pipeline", "internal/redisconn",
		"internal/onstore", "internal/redisprobe", "embedded", "internal/testing/redistest", "internal/testing/storetest", "chaos/internal/chaostest", "examples/nightly", "examples/queue"},
	"github.com/alicebob/miniredis":         {"embedded"},
	"github.com/spf13/cobra":                {"cmd/coatcheck/internal/cli"},
	"github.com/spf13/pflag":                {"cmd/coatcheck/internal/cli", "cmd/coatcheck/internal/config"},
	"github.com/oklog/ulid":                 {"internal/textid"},
	"go.jetify.com/typeid":                  {"internal/textid"},
	"github.com/go-jose/go-jose":            {"idempotency/jwtprincipal", "internal/testing/issuer"},
	"github.com/getkin/kin-openapi":         {"internal/testing/apitest"},
	"github.com/santhosh-tekuri/jsonschema": {"internal/testing/apitest"},
	"go.opentelemetry.io/otel/sdk":          {"cmd/coatcheck/internal/tracing"},
	"go.opentelemetry.io/otel/exporters":    {"cmd/coatcheck/internal/tracing"},
	"go.opentelemetry.io/otel/trace":        {"server", "gateway", "internal/requestlog", "cmd/coatcheck/internal/tracing"},
	"github.com/go-sql-driver/mysql":        {"cmd/coatcheck/internal/cli", "internal/testing/sqltest"},
	"github.com/jackc/pgx":                  {"cmd/coatcheck/internal/cli", "internal/postgres", "internal/testing/sqltest"},
}

// TestImportsRunOneWay reads every Go file of the module but tests, whatever system it is for.
func TestImportsRunOneWay(t *testing.T) {
	used := map[string]bool{} // folders and restricted libraries that were met
	for _, name := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		expect.NoError(t, "parser.ParseFile", err)
		folder := path.Dir(name)
		used[folder] = true
		for _, imported := range imports(file) {
			used[library(imported)] = true
		}
		for _, fault := range misplaced(folder, file) {
			t.Errorf("%s is misplaced: %s", name, fault)
		}
	}
	// A check that meets nothing finds nothing.
	for _, want := range []string{".", "cmd/coatcheck", "cmd/coatcheck/internal/cli", "server", "redisstore", "api", "github.com/labstack/echo", "github.com/redis/go-redis"} {
		if !used[want] {
			t.Errorf("%s was not met: does this test still read the code?", want)
		}
	}
}

// What only a module beside this one imports is not required here: each program that imports
// coatcheck would have it in its graph of modules.
func TestLibrariesOfOtherModulesStayThere(t *testing.T) {
	required := func(folder, library string) bool {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		expect.NoError(t, "os.ReadFile", err)
		return strings.Contains(string(text), library+" v")
	}
	for library, folder := range map[string]string{
		"github.com/chromedp/chromedp":           "console/browser",
		"github.com/google/go-containerregistry": "tools/release",
		"github.com/gin-contrib/timeout":         "gateway/timelimits",
		"github.com/gin-gonic/gin":               "idempotency/ginmw",
		"github.com/go-chi/chi/v5":               "idempotency/chicheck",
		"github.com/labstack/echo/v5":            "idempotency/echov5",
		"github.com/gofiber/fiber/v3":            "idempotency/fiberv3",
		"github.com/google/licensecheck":         "tools/release",
		"github.com/prometheus/prometheus":       "deploy/monitoring",
		"github.com/ogen-go/ogen":                "openapi/testdata/generated",
		"github.com/redis/rueidis":               "bench",
		"golang.org/x/exp":                       "tools/stable",
		"google.golang.org/grpc":                 "idempotency/grpcmw",
		"gotest.tools/gotestsum":                 "tools/testrun",
		"helm.sh/helm/v3":                        "deploy/check",
		"modernc.org/sqlite":                     "examples/payments",
	} {
		if required(".", library) {
			t.Errorf("go.mod requires %s, which is for the module %s", library, folder)
		}
		if !required(folder, library) {
			t.Errorf("%s/go.mod does not require %s: does this test still read it?", folder, library)
		}
	}
}

// goFiles lists the module's Go files without tests, with slashes. Folders with a go.mod of their
// own are other modules.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			_, noModule := os.Stat(filepath.Join(name, "go.mod"))
			if noModule == nil || entry.Name() == "testdata" || strings.ContainsAny(entry.Name()[:1], "._") {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			files = append(files, filepath.ToSlash(name))
		}
		return nil
	})
	expect.NoError(t, "filepath.WalkDir", err)
	return files
}

// misplaced finds the imports of a file in a folder that the tables do not allow.
func misplaced(folder string, file *ast.File) (faults []string) {
	may, placed := layers[folder]
	if !placed {
		faults = append(faults, "folder "+folder+" has no place in the table of layering_test.go")
	}
	for _, imported := range imports(file) {
		ours, isOurs := within(imported, module)
		switch {
		case isOurs && slices.Contains(testHelpers, ours) && !slices.Contains(testHelpers, folder):
			faults = append(faults, folder+" imports "+ours+", which is for tests")
		case isOurs && !slices.Contains(may, ours) && !slices.Contains(may, everything):
			faults = append(faults, folder+" may not import "+ours)
		}
		if known := library(imported); known != "" && !slices.Contains(libraries[known], folder) {
			faults = append(faults, folder+" may not import "+known)
		}
	}
	return faults
}

// library is the restricted library that an import path belongs to, or "".
func library(imported string) string {
	for name := range libraries {
		if _, ok := within(imported, name); ok {
			return name
		}
	}
	return ""
}

// within cuts a path's parent off: a/b/c is c within a/b, and a/b itself is "." there.
func within(imported, parent string) (rest string, ok bool) {
	if imported == parent {
		return ".", true
	}
	return strings.CutPrefix(imported, parent+"/")
}

func imports(file *ast.File) []string {
	var paths []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		paths = append(paths, imported)
	}
	return paths
}

const ours = module + "/"

// importing is a file in a folder that imports one thing. An empty fault means that it may.
type importing struct{ folder, imports, fault string }

var importings = []importing{
	{"cmd/coatcheck", ours + "cmd/coatcheck/internal/cli", ""},
	{"cmd/coatcheck", ours + "server", "cmd/coatcheck may not import server"},
	{"cmd/coatcheck", "github.com/spf13/cobra", "cmd/coatcheck may not import github.com/spf13/cobra"},
	{"cmd/coatcheck/internal/cli", ours + "gateway", ""},
	{"cmd/coatcheck/internal/cli", "github.com/spf13/cobra", ""},
	{"cmd/coatcheck/internal/config", "github.com/spf13/cobra", "cmd/coatcheck/internal/config may not import github.com/spf13/cobra"},
	{"cmd/coatcheck/internal/config", ours + "cmd/coatcheck/internal/cli", "cmd/coatcheck/internal/config may not import cmd/coatcheck/internal/cli"},
	{"cmd/coatcheck/internal/supervise", "github.com/spf13/cobra", "cmd/coatcheck/internal/supervise may not import github.com/spf13/cobra"},
	{"cmd/coatcheck/internal/supervise", ours + "cmd/coatcheck/internal/cli", "cmd/coatcheck/internal/supervise may not import cmd/coatcheck/internal/cli"},
	{"cmd/coatcheck/internal/cli", ours + "internal/testing/redistest", "cmd/coatcheck/internal/cli imports internal/testing/redistest, which is for tests"},
	{"cmd/coatcheck/internal/cli", "github.com/redis/go-redis/v9", "cmd/coatcheck/internal/cli may not import github.com/redis/go-redis"},
	{"cmd/coatcheck/internal/cli", "github.com/labstack/echo/v4", "cmd/coatcheck/internal/cli may not import github.com/labstack/echo"},
	{"cmd/other", "fmt", "folder cmd/other has no place"},
	{"newcomer", "fmt", "folder newcomer has no place"},
	{"server/sub", "fmt", "folder server/sub has no place"},
	{".", ours + "counter", ". may not import counter"},

	{"server", ours + "access", ""},
	{"gateway", ours + "access", "gateway may not import access"},
	{"server", ours + "metrics", ""},
	{"server", "github.com/prometheus/client_golang/prometheus", "server may not import github.com/prometheus/client_golang"},
	{"metrics", "github.com/prometheus/client_golang/prometheus", ""},
	{"metrics", ours + "lock", "metrics may not import lock"},
	{"counter", ours + "metrics", "counter may not import metrics"},

	{"access", ours + "redisstore", ""},
	{"access", ours + "server", "access may not import server"},
	{"access", "github.com/labstack/echo/v4", "access may not import github.com/labstack/echo"},
	{"access", "github.com/redis/go-redis/v9", "access may not import github.com/redis/go-redis"},
	{"server", ours + "idempotency", ""},
	{"server", "github.com/labstack/echo/v4/middleware", ""},
	{"server", ours + "scripts", "server may not import scripts"},
	{"server", ours + "embedded", "server may not import embedded"},
	{"server", ours + "gateway", "server may not import gateway"},
	{"server", "github.com/redis/go-redis/v9", "server may not import github.com/redis/go-redis"},
	{"server", ours + "server/internal/stamper", ""},
	{"server", ours + "workerlease/holder", "server may not import workerlease/holder"},
	{"server/internal/compat", "github.com/labstack/echo/v4", ""},
	{"server/internal/compat", ours + "server", "server/internal/compat may not import server"},
	{"server/internal/stamper", ours + "workerlease", ""},
	{"server/internal/stamper", ours + "api", "server/internal/stamper may not import api"},
	{"gateway", ours + "server/internal/ledger", ""},
	{"gateway", ours + "server/internal/stamper", "gateway may not import server/internal/stamper"},
	{"gateway", ours + "server", "gateway may not import server"},
	{"gateway", "github.com/labstack/echo/v4", "gateway may not import github.com/labstack/echo"},

	{"server", "go.opentelemetry.io/otel/trace", ""},
	{"server", "go.opentelemetry.io/otel/sdk/trace", "server may not import go.opentelemetry.io/otel/sdk"},
	{"redisstore", "go.opentelemetry.io/otel/trace", "redisstore may not import go.opentelemetry.io/otel/trace"},

	{"idempotency", ours + "redisstore", ""},
	{"idempotency", ours + "internal/keepalive", ""},
	{"idempotency", ours + "counter", "idempotency may not import counter"},
	{"idempotency", ours + "server", "idempotency may not import server"},
	{"idempotency", "github.com/labstack/echo/v4", "idempotency may not import github.com/labstack/echo"},
	{"idempotency/echov4", "github.com/labstack/echo/v4", ""},
	{"idempotency/echov4", ours + "server", "idempotency/echov4 may not import server"},
	{"lock", ours + "idempotency", "lock may not import idempotency"},
	{"workerlease", ours + "snowflake", ""},
	{"segment", ours + "counter", "segment may not import counter"},
	{"segment", "github.com/jackc/pgx/v5/stdlib", "segment may not import github.com/jackc/pgx"},
	{"segment", ours + "internal/testing/sqltest", "segment imports internal/testing/sqltest, which is for tests"},
	{"cmd/coatcheck/internal/cli", "github.com/go-sql-driver/mysql", ""},
	{"counter", ours + "embedded", "counter may not import embedded"},
	{"counter", ours + "server/internal/ledger", "counter may not import server/internal/ledger"},
	{"counter", "github.com/redis/go-redis/v9", "counter may not import github.com/redis/go-redis"},
	{"snowflake", ours + "workerlease", "snowflake may not import workerlease"},
	{"snowflake", ours + "api", "snowflake may not import api"},
	{"server", ours + "number", ""},
	{"counter", ours + "number", "counter may not import number"},
	{"number", ours + "counter", "number may not import counter"},

	{"redisstore", ours + "scripts", ""},
	{"redisstore", "github.com/redis/go-redis/v9", ""},
	{"redisstore", ours + "counter", "redisstore may not import counter"},
	{"redisstore", ours + "api", "redisstore may not import api"},
	{"redisstore", "github.com/alicebob/miniredis/v2", "redisstore may not import github.com/alicebob/miniredis"},
	{"embedded", "github.com/alicebob/miniredis/v2/server", ""},
	{"embedded", ours + "redisstore", "embedded may not import redisstore"},
	{"scripts", ours + "redisstore", "scripts may not import redisstore"},
	{"scripts", module, "scripts may not import ."},

	{"client", ours + "api", ""},
	{"client", ours + "redisstore", "client may not import redisstore"},
	{"client", "github.com/spf13/pflag", "client may not import github.com/spf13/pflag"},
	{"server/internal/ledger", ours + "redisstore", ""},
	{"server/internal/ledger", ours + "idempotency", "server/internal/ledger may not import idempotency"},
	{"api", ours + "internal/secret", "api may not import internal/secret"},
	{"internal/secret", ours + "api", "internal/secret may not import api"},
	{"internal/keepalive", ours + "redisstore", "internal/keepalive may not import redisstore"},

	{"internal/testing/storetest", ours + "internal/testing/redistest", ""},
	{"internal/testing/redistest", ours + "redisstore", "internal/testing/redistest may not import redisstore"},
	{"redisstore", ours + "internal/testing/storetest", "redisstore imports internal/testing/storetest, which is for tests"},
	{"internal/testing/expect", ours + "api", "internal/testing/expect may not import api"},

	// Names that only begin alike are others.
	{"counter", "github.com/coatcheck/coatcheckers/counter", ""},
	{"counter", "github.com/redis/go-redis-fork", ""},
}

func TestMisplacedImportsAreFound(t *testing.T) {
	for _, row := range importings {
		t.Run(row.folder+" "+row.imports, func(t *testing.T) {
			source := "package p\n\nimport _ " + strconv.Quote(row.imports) + "\n"
			file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ImportsOnly)
			expect.NoError(t, "parser.ParseFile", err)
			faults := misplaced(row.folder, file)
			switch {
			case row.fault == "" && len(faults) > 0:
				t.Errorf("unexpected: %q", faults)
			case row.fault != "" && (len(faults) != 1 || !strings.HasPrefix(faults[0], row.fault)):
				t.Errorf("got %q, want %q", faults, row.fault)
			}
		})
	}
}
