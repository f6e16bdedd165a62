package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The Dockerfile and docker-compose.yml are checked here by reading them: names, ports, settings
// and conditions that have to agree with each other and with this program. Whether Docker runs them
// is another question.
func TestDockerFilesAgreeWithTheProgram(t *testing.T) {
	for _, fault := range deploymentFaults(readRoot(t, "docker-compose.yml"), readRoot(t, "Dockerfile")) {
		t.Errorf("fault of docker-compose.yml or Dockerfile: %v", fault)
	}
}

// Each row breaks one thing, and must be found.
func TestBrokenDockerFilesAreFound(t *testing.T) {
	const compose, docker = "docker-compose.yml", "Dockerfile"
	for _, row := range []struct{ name, file, old, new, fault string }{
		{"not YAML", compose, "services:\n", "services: [\n", "docker-compose.yml: "},
		{"misspelled key", compose, "    healthcheck:", "    heathcheck:", "heathcheck"},
		{"unknown key on top", compose, "x-stop:", "stop:", "unknown key stop"},
		{"neither image nor build", compose, "  image: redis:7.4-alpine@sha256:ff02b58f971e7d7d156a1267e283fcbbeee91773b6aa36c49dac28ecfe28eadf\n", "", "redis: neither an image nor a build"},
		{"build without a Dockerfile", compose, "build: .", "build: ./docs", "coatcheck: no Dockerfile in ./docs"},
		{"unknown setting", compose, "COATCHECK_DRAIN_DELAY", "COATCHECK_DRAIN", "coatcheck: no setting COATCHECK_DRAIN"},
		{"unknown setting in the image", docker, "ENV COATCHECK_LISTEN=", "ENV COATCHECK_ADDRESS=", "Dockerfile: no setting COATCHECK_ADDRESS"},
		{"value that is refused", compose, "COATCHECK_STOP_TIMEOUT: 35s", "COATCHECK_STOP_TIMEOUT: ten", `coatcheck: COATCHECK_STOP_TIMEOUT: "ten" is not`},
		{"value that is refused in the image", docker, "0.0.0.0:8080", "8080", "Dockerfile: COATCHECK_LISTEN: "},
		{"URL that is refused", compose, "sentinel-3/coatcheck", "sentinel-3", "coatcheck-sentinel: redis URL: Sentinel needs"},
		{"master that no sentinel watches", compose, "sentinel monitor coatcheck", "sentinel monitor main", `coatcheck-sentinel: no sentinel watches "coatcheck"`},
		{"listens to others without TLS and keys", compose, "COATCHECK_INSECURE", "#", "coatcheck: listen: 0.0.0.0:8080 can be reached from other machines"},
		{"host that is no service", compose, "redis://redis:6379", "redis://cache:6379", "coatcheck: cache of COATCHECK_REDIS is no service"},
		{"host of another profile", compose, "redis+cluster://node-1,", "redis+cluster://sentinel-1,", "coatcheck-cluster: sentinel-1 of COATCHECK_REDIS is of other profiles"},
		{"image listens elsewhere", docker, "0.0.0.0:8080", "0.0.0.0:9090", "coatcheck: port 8080, but it listens on 9090"},
		{"image listens to itself alone", docker, "0.0.0.0:8080", "127.0.0.1:8080", "Dockerfile: no other host reaches 127.0.0.1"},
		{"service on another port", compose, "8081:8080", "8081:80", "coatcheck-sentinel: port 80, but it listens on 8080"},
		{"service without a port", compose, `    ports: ["127.0.0.1:8082:8080"]`, "", "coatcheck-cluster: no port"},
		{"port open to all", compose, "127.0.0.1:8080:8080", "8080:8080", "coatcheck: port 8080:8080 is not bound to 127.0.0.1"},
		{"host port taken twice", compose, "127.0.0.1:8081:8080", "127.0.0.1:8080:8080", "host port 8080 is taken twice"},
		{"no health check", compose, "    healthcheck: *answers\n", "", "node-1: no health check"},
		{"unknown form of health check", compose, `[CMD-SHELL, "redis-cli ping`, `[SHELL, "redis-cli ping`, "redis: health check: neither CMD nor CMD-SHELL"},
		{"health check by another command", compose, "[CMD, /coatcheck, healthcheck]", "[CMD, /coatcheck, health]", "coatcheck: health check: health is no command"},
		{"health check by another program", compose, "[CMD, /coatcheck, healthcheck]", "[CMD, curl, localhost]", "coatcheck: health check: curl is not /coatcheck"},
		{"dependence on nothing", compose, "      redis: {condition", "      cache: {condition", "coatcheck: depends on cache, which is no service"},
		{"dependence on health that is not checked", compose, "cluster-create: {condition: service_completed_successfully}", "cluster-create: {condition: service_healthy}", "coatcheck-cluster: waits for the health of cluster-create"},
		{"waits for the end of what does not end", compose, "redis: {condition: service_healthy}", "redis: {condition: service_completed_successfully}", "coatcheck: waits for the end of redis"},
		{"does not wait", compose, "redis: {condition: service_healthy}", "redis: {condition: service_started}", "coatcheck: condition service_started"},
		{"dependence on another profile", compose, "cluster-create: {condition", "sentinel-1: {condition", "coatcheck-cluster: depends on sentinel-1, which is of other profiles"},
		{"volume that is not declared", compose, "\nvolumes:\n  redis-data:\n", "\nvolumes:\n", "redis: volume redis-data is not declared"},
		{"volume that is not used", compose, "\nvolumes:\n", "\nvolumes:\n  more:\n", "volume more is not used"},
		{"directory of the host", compose, "redis-data:/data", "./data:/data", "redis: ./data:/data may be written"},
		{"file of the host that there is not", compose, "./deploy/prometheus/alerts.yml", "./deploy/prometheus/alarms.yml", "prometheus: ./deploy/prometheus/alarms.yml is not there"},
		{"folder above", compose, "./deploy/grafana/provisioning:", "../deploy/grafana/provisioning:", "grafana: ../deploy/grafana/provisioning:/etc/grafana/provisioning:ro is no volume"},
		{"file of the host that may be written", compose, "coatcheck.json:ro", "coatcheck.json", "grafana: ./deploy/grafana/coatcheck.json:/etc/dashboards/coatcheck.json may be written"},
		{"image without a tag", compose, "prom/prometheus:v3.5.0", "prom/prometheus", "has no tag"},
		{"image of the day", compose, "redis:7.4-alpine", "redis:latest", "has no tag that stays"},
		{"image without a digest", compose, "redis:7.4-alpine@sha256:ff02b58f971e7d7d156a1267e283fcbbeee91773b6aa36c49dac28ecfe28eadf", "redis:7.4-alpine", "redis: image redis:7.4-alpine is not pinned by a digest"},
		{"image with half of a digest", compose, "@sha256:63805ebb8d2b3920190daf1cb14a60871b16fd38bed42b857a3182bc621f4996", "@sha256:63805ebb8d2b3920", "is not pinned by a digest"},
		{"build from an image without a digest", docker, "@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d", "", "Dockerfile: image golang:1.26-bookworm is not pinned by a digest"},
		{"password", compose, "GF_AUTH_ANONYMOUS_ORG_ROLE: Viewer", "GF_SECURITY_ADMIN_PASSWORD: admin", "grafana: GF_SECURITY_ADMIN_PASSWORD is a secret"},
		{"password in a URL", compose, "redis://valkey:6379", "redis://:secret@valkey:6379", "coatcheck-valkey: COATCHECK_REDIS holds a password"},
		{"password of a server", compose, "        appendfsync everysec\n", "        appendfsync everysec\n        requirepass secret\n", "member-1: requirepass is a secret"},
		{"Valkey that evicts", compose, "[valkey-server, --appendonly, \"yes\", --appendfsync, everysec, --maxmemory-policy, noeviction]", "[valkey-server, --appendonly, \"yes\", --appendfsync, everysec]", "valkey: no maxmemory-policy noeviction"},
		{"server without a log", compose, "--appendonly, \"yes\"", "--appendonly, \"no\"", "redis: no appendonly yes"},
		{"server that syncs when it likes", compose, "appendfsync everysec", "appendfsync no", "member-1: no appendfsync everysec"},
		{"server that evicts", compose, "maxmemory-policy noeviction", "maxmemory-policy allkeys-lru", "member-1: no maxmemory-policy noeviction"},
		{"unknown profile", compose, "profiles: [cluster]", "profiles: [clutser]", "node-1: unknown profile clutser"},
		{"more by default", compose, "    profiles: [cluster]\n    restart", "    restart", "cluster-create: starts by default"},
		{"killed before it has stopped", compose, "stop_grace_period: 60s", "stop_grace_period: 40s", "coatcheck: stop_grace_period 40s"},
		{"file system that can be written", compose, "  read_only: true\n", "", "coatcheck: not read_only"},
		{"capabilities", compose, "cap_drop: [ALL]", "cap_drop: [NET_RAW]", "coatcheck: keeps capabilities"},
		{"new privileges", compose, "  cap_drop: [ALL]\n  security_opt: [\"no-new-privileges:true\"]\n", "  cap_drop: [ALL]\n", "coatcheck: may gain privileges"},
		{"runs as root", docker, "USER 65532:65532\n", "", "Dockerfile: USER"},
		{"runs as root by name", docker, "USER 65532:65532\n", "USER root\n", "Dockerfile: USER"},
		{"other user in another stage", docker, "USER 65532:65532\n", "USER 65532\nFROM scratch\n", "Dockerfile: USER"},
		{"image without a health check", docker, "HEALTHCHECK", "#", "Dockerfile: HEALTHCHECK"},
		{"health check through a shell", docker, `CMD ["/coatcheck", "healthcheck"]`, "CMD /coatcheck healthcheck", "Dockerfile: HEALTHCHECK"},
		{"health check that is no command", docker, `["/coatcheck", "healthcheck"]`, `["/coatcheck", "ready"]`, "Dockerfile: HEALTHCHECK: ready is no command"},
		{"exposes another port", docker, "EXPOSE 8080", "EXPOSE 80", "Dockerfile: EXPOSE 80"},
		{"starts through a shell", docker, `ENTRYPOINT ["/coatcheck"]`, "ENTRYPOINT /coatcheck", "Dockerfile: ENTRYPOINT"},
		{"starts what it has not", docker, "/out/coatcheck /coatcheck", "/out/coatcheck /bin/coatcheck", "Dockerfile: /coatcheck is not copied"},
		{"does what is no command", docker, `CMD ["serve"]`, `CMD ["server"]`, "Dockerfile: CMD: server is no command"},
		{"needs a C library", docker, "CGO_ENABLED=0 ", "", "Dockerfile: the build is not static"},
		{"holds paths of the build", docker, "-trimpath ", "", "Dockerfile: the build is not static"},
		{"another Go", docker, "golang:1.26", "golang:1.25", "Dockerfile: golang:1.25-bookworm"},
		{"copies from no stage", docker, "AS build", "AS builder", "Dockerfile: no stage build"},
	} {
		t.Run(row.name, func(t *testing.T) {
			files := map[string]string{compose: readRoot(t, compose), docker: readRoot(t, docker)}
			broken := strings.Replace(files[row.file], row.old, row.new, 1)
			if broken == files[row.file] {
				t.Fatalf("%s does not hold %q: this row breaks nothing", row.file, row.old)
			}
			files[row.file] = broken
			faults := deploymentFaults(files[compose], files[docker])
			if !slices.ContainsFunc(faults, func(fault string) bool { return strings.Contains(fault, row.fault) }) {
				t.Errorf("no fault %q, but: %q", row.fault, faults)
			}
		})
	}
}

// root is the repository, seen from here.
const root = "../../../.."

func readRoot(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	expect.NoError(t, "read "+name, err)
	return string(text)
}

// composition is a compose file, as far as ours goes. A key that is not here is a fault: it may be
// misspelled.
type composition struct {
	Services map[string]*service `yaml:"services"`
	Volumes  map[string]any      `yaml:"volumes"`
	Others   map[string]any      `yaml:",inline"`
}

type service struct {
	Image       string               `yaml:"image"`
	Build       string               `yaml:"build"`
	Command     []string             `yaml:"command"`
	User        string               `yaml:"user"`
	Environment map[string]string    `yaml:"environment"`
	Ports       []string             `yaml:"ports"`
	Volumes     []string             `yaml:"volumes"`
	Profiles    []string             `yaml:"profiles"`
	DependsOn   map[string]dependsOn `yaml:"depends_on"`
	Health      *healthCheck         `yaml:"healthcheck"`
	Restart     string               `yaml:"restart"`
	Grace       time.Duration        `yaml:"stop_grace_period"`
	ReadOnly    bool                 `yaml:"read_only"`
	CapDrop     []string             `yaml:"cap_drop"`
	Security    []string             `yaml:"security_opt"`
}

type dependsOn struct {
	Condition string `yaml:"condition"`
}

type healthCheck struct {
	Test     []string      `yaml:"test"`
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
	Start    time.Duration `yaml:"start_period"`
	Retries  int           `yaml:"retries"`
}

// ends reports whether a service does one thing and is done.
func (s *service) ends() bool { return s.Restart == "no" }

// startsWith reports whether a service is started whenever the other one is.
func (s *service) startsWith(other *service) bool {
	return len(s.Profiles) == 0 || slices.Equal(s.Profiles, other.Profiles)
}

// deployment is the two files, and what is wrong with them.
type deployment struct {
	composition

	image  image
	faults []string
}

func (d *deployment) faultf(where, format string, args ...any) {
	d.faults = append(d.faults, where+": "+fmt.Sprintf(format, args...))
}

// deploymentFaults finds all that is wrong with a compose file and a Dockerfile.
func deploymentFaults(compose, docker string) []string {
	d := &deployment{image: readImage(docker)}
	d.checkImage()
	if err := yaml.Load([]byte(compose), &d.composition, yaml.WithKnownFields()); err != nil {
		d.faultf("docker-compose.yml", "%v", err)
		return d.faults
	}
	for key := range d.Others {
		if !strings.HasPrefix(key, "x-") {
			d.faultf("docker-compose.yml", "unknown key %s", key)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Services)) {
		s := d.Services[name]
		d.checkStart(name, s)
		d.checkHealth(name, s)
		d.checkDependence(name, s)
		d.checkSecrets(name, s)
		if command := strings.Join(s.Command, " "); strings.Contains(command, "redis-server") || strings.Contains(command, "valkey-server") {
			d.checkRedis(name, s)
		}
		if s.Build != "" {
			d.checkCoatcheck(name, s)
		}
	}
	d.checkVolumes()
	d.checkHostPorts()
	return d.faults
}

func (d *deployment) checkStart(name string, s *service) {
	if s.Image == "" && s.Build == "" {
		d.faultf(name, "neither an image nor a build")
	}
	if s.Build != "" {
		if _, err := os.Stat(filepath.Join(root, s.Build, "Dockerfile")); err != nil {
			d.faultf(name, "no Dockerfile in %s", s.Build)
		}
	}
	if len(s.Profiles) == 0 && name != "redis" && name != "coatcheck" {
		d.faultf(name, "starts by default")
	}
	for _, profile := range s.Profiles {
		if !slices.Contains([]string{"sentinel", "cluster", "valkey", "observe"}, profile) {
			d.faultf(name, "unknown profile %s", profile)
		}
	}
	named, digest, _ := strings.Cut(s.Image, "@")
	switch _, tag, tagged := strings.Cut(named[strings.LastIndex(named, "/")+1:], ":"); {
	case s.Build != "" || s.Image == "":
	case !tagged:
		d.faultf(name, "image %s has no tag", s.Image)
	case tag == "latest":
		d.faultf(name, "image %s has no tag that stays", s.Image)
	case !digestForm.MatchString(digest):
		d.faultf(name, "image %s is not pinned by a digest", s.Image)
	}
}

// digestForm is what says which image is meant, whatever its tag comes to mean.
var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

var (
	secretName   = regexp.MustCompile(`PASSWORD|SECRET|TOKEN|_KEYS?$`)
	secretInURL  = regexp.MustCompile(`://[^/ ]*@`)
	secretOption = regexp.MustCompile(`requirepass|masterauth|auth-pass|sentinel-pass|_password=`)
)

// checkSecrets finds what only the operator should know.
func (d *deployment) checkSecrets(name string, s *service) {
	for _, variable := range slices.Sorted(maps.Keys(s.Environment)) {
		switch value := s.Environment[variable]; {
		case secretName.MatchString(variable):
			d.faultf(name, "%s is a secret", variable)
		case secretInURL.MatchString(value) || secretOption.MatchString(value):
			d.faultf(name, "%s holds a password", variable)
		}
	}
	if option := secretOption.FindString(strings.Join(s.Command, " ")); option != "" {
		d.faultf(name, "%s is a secret", option)
	}
}

func (d *deployment) checkHealth(name string, s *service) {
	switch {
	case s.Health == nil && !s.ends():
		d.faultf(name, "no health check")
	case s.Health == nil:
	case len(s.Health.Test) < 2 || s.Health.Test[0] != "CMD" && s.Health.Test[0] != "CMD-SHELL":
		d.faultf(name, "health check: neither CMD nor CMD-SHELL")
	case s.Build != "":
		d.checkCommand(name+": health check", s.Health.Test[1:])
	}
}

// checkCommand checks a command line of this program.
func (d *deployment) checkCommand(where string, words []string) {
	if len(words) == 0 || words[0] != d.image.program() {
		d.faultf(where, "%s is not %s", strings.Join(words[:min(1, len(words))], ""), d.image.program())
		return
	}
	d.checkArguments(where, words[1:])
}

func (d *deployment) checkArguments(where string, words []string) {
	found, _, err := ownCommand().Find(words)
	if err != nil || len(words) == 0 || found.Name() != words[0] {
		d.faultf(where, "%s is no command", strings.Join(words, " "))
	}
}

func (d *deployment) checkDependence(name string, s *service) {
	for _, on := range slices.Sorted(maps.Keys(s.DependsOn)) {
		other, condition := d.Services[on], s.DependsOn[on].Condition
		switch {
		case other == nil:
			d.faultf(name, "depends on %s, which is no service", on)
			continue
		case condition != "service_healthy" && condition != "service_completed_successfully":
			d.faultf(name, "condition %s says nothing about what works", condition)
		case condition == "service_healthy" && other.Health == nil:
			d.faultf(name, "waits for the health of %s, which has no check", on)
		case condition == "service_completed_successfully" && !other.ends():
			d.faultf(name, "waits for the end of %s, which starts again", on)
		}
		if !other.startsWith(s) {
			d.faultf(name, "depends on %s, which is of other profiles", on)
		}
	}
}

// checkRedis checks what a Redis is told, on its command line or in a file that its command writes.
func (d *deployment) checkRedis(name string, s *service) {
	command := strings.Join(s.Command, " ")
	for _, want := range []string{"appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction"} {
		if !strings.Contains(command, want) {
			d.faultf(name, "no %s", want)
		}
	}
}

func (d *deployment) checkCoatcheck(name string, s *service) {
	env := maps.Clone(d.image.env)
	maps.Copy(env, s.Environment)
	c := d.configOf(name, env)
	if err := errors.Join(c.Store.Check(), c.CheckListen()); err != nil {
		d.faultf(name, "%v", err)
	}
	d.checkRedisURL(name, s, c.Store.URL)
	if len(s.Ports) == 0 {
		d.faultf(name, "no port")
	}
	for _, port := range s.Ports {
		if inside := port[strings.LastIndex(port, ":")+1:]; inside != portOf(c.Listen) {
			d.faultf(name, "port %s, but it listens on %s", inside, portOf(c.Listen))
		}
	}
	if s.Grace < c.Server.DrainDelay+stopsWithin(c) {
		d.faultf(name, "stop_grace_period %v does not outlast drain delay %v and the stop, of %v", s.Grace, c.Server.DrainDelay, stopsWithin(c))
	}
	if !s.ReadOnly {
		d.faultf(name, "not read_only")
	}
	if !slices.Contains(s.CapDrop, "ALL") {
		d.faultf(name, "keeps capabilities")
	}
	if !slices.Contains(s.Security, "no-new-privileges:true") {
		d.faultf(name, "may gain privileges")
	}
}

// configOf is the configuration that an environment makes, by the program's own table.
func (d *deployment) configOf(where string, env map[string]string) *config.Service {
	c := &config.Service{}
	known := map[string]bool{}
	for _, s := range config.ServiceSettings(c) {
		known[s.Variable()] = true
		value, ok := env[s.Variable()]
		if !ok {
			value = s.Value
		}
		if err := s.Parse(value); err != nil {
			d.faultf(where, "%s: %v", s.Variable(), err)
		}
	}
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(variable, "COATCHECK_") && !known[variable] {
			d.faultf(where, "no setting %s", variable)
		}
	}
	return c
}

// checkRedisURL checks that the hosts of a URL are services that run beside this one, and that a
// Sentinel knows the master.
func (d *deployment) checkRedisURL(name string, s *service, url string) {
	_, rest, _ := strings.Cut(url, "://")
	hosts, master, _ := strings.Cut(rest, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		host, _, _ = strings.Cut(host, ":")
		switch other := d.Services[host]; {
		case other == nil:
			d.faultf(name, "%s of COATCHECK_REDIS is no service", host)
		case !other.startsWith(s):
			d.faultf(name, "%s of COATCHECK_REDIS is of other profiles", host)
		case master != "" && !strings.Contains(strings.Join(other.Command, " "), "sentinel monitor "+master+" "):
			d.faultf(name, "no sentinel watches %q", master)
		}
	}
}

func (d *deployment) checkVolumes() {
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.Services)) {
		for _, mount := range d.Services[name].Volumes {
			volume, _, _ := strings.Cut(mount, ":")
			used[volume] = true
			if _, ok := d.Volumes[volume]; strings.HasPrefix(volume, "./") {
				d.checkHostFile(name, mount)
			} else if strings.ContainsAny(volume, "./") {
				d.faultf(name, "%s is no volume", mount)
			} else if !ok {
				d.faultf(name, "volume %s is not declared", volume)
			}
		}
	}
	for volume := range d.Volumes {
		if !used[volume] {
			d.faultf("docker-compose.yml", "volume %s is not used", volume)
		}
	}
}

// checkHostFile checks a file or folder of this repository that a container reads.
func (d *deployment) checkHostFile(name, mount string) {
	file, _, _ := strings.Cut(mount, ":")
	if !strings.HasSuffix(mount, ":ro") {
		d.faultf(name, "%s may be written", mount)
	}
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		d.faultf(name, "%s is not there", file)
	}
}

var portForm = regexp.MustCompile(`^127\.0\.0\.1:([0-9]+):[0-9]+$`)

func (d *deployment) checkHostPorts() {
	taken := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.Services)) {
		for _, port := range d.Services[name].Ports {
			parts := portForm.FindStringSubmatch(port)
			if parts == nil {
				d.faultf(name, "port %s is not bound to 127.0.0.1", port)
				continue
			}
			if taken[parts[1]] {
				d.faultf(name, "host port %s is taken twice", parts[1])
			}
			taken[parts[1]] = true
		}
	}
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// image is a Dockerfile: every instruction, and those of the last stage, which is what runs.
type image struct {
	all  []instruction
	last map[string]string // the last of each word
	env  map[string]string // of the last stage
}

type instruction struct{ word, args string }

// readImage reads a Dockerfile line by line; a backslash at a line's end joins it with the next.
func readImage(text string) image {
	i := image{last: map[string]string{}, env: map[string]string{}}
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		word, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		if word == "FROM" {
			clear(i.last)
			clear(i.env)
		}
		if name, value, ok := strings.Cut(args, "="); ok && word == "ENV" {
			i.env[name] = value
		}
		i.all = append(i.all, instruction{word, args})
		i.last[word] = args
	}
	return i
}

// argv reads the form of a command that needs no shell: ["program", "argument"]. Another form is
// nil.
func argv(text string) []string {
	var words []string
	if json.Unmarshal([]byte(text), &words) != nil {
		return nil
	}
	return words
}

// program is what the image runs, "" if that is a shell.
func (i image) program() string {
	if words := argv(i.last["ENTRYPOINT"]); len(words) == 1 {
		return words[0]
	}
	return ""
}

var userForm = regexp.MustCompile(`^[1-9][0-9]*(:[1-9][0-9]*)?$`)

func (d *deployment) checkImage() {
	const where = "Dockerfile"
	c := d.configOf(where, d.image.env)
	if host := strings.TrimSuffix(c.Listen, ":"+portOf(c.Listen)); host != "0.0.0.0" {
		d.faultf(where, "no other host reaches %s", host)
	}
	if expose := d.image.last["EXPOSE"]; expose != portOf(c.Listen) {
		d.faultf(where, "EXPOSE %s, but it listens on %s", expose, portOf(c.Listen))
	}
	if user := d.image.last["USER"]; !userForm.MatchString(user) {
		d.faultf(where, "USER %q is not the number of one that is not root", user)
	}
	if d.image.program() == "" {
		d.faultf(where, "ENTRYPOINT %s is not one program", d.image.last["ENTRYPOINT"])
	}
	d.checkArguments(where+": CMD", argv(d.image.last["CMD"]))
	_, health, _ := strings.Cut(d.image.last["HEALTHCHECK"], "CMD ")
	d.checkCommand(where+": HEALTHCHECK", argv(health))
	d.checkBuild(where)
}

// checkBuild checks how the binary is made and comes into the image.
func (d *deployment) checkBuild(where string) {
	stages, static, copied := map[string]bool{}, false, false
	for _, i := range d.image.all {
		words := strings.Fields(i.args)
		switch i.word {
		case "FROM":
			copied = false
			if _, digest, _ := strings.Cut(words[0], "@"); words[0] != "scratch" && !digestForm.MatchString(digest) {
				d.faultf(where, "image %s is not pinned by a digest", words[0])
			}
			stages[words[len(words)-1]] = true
			if version, ok := strings.CutPrefix(words[0], "golang:"); ok && !strings.HasPrefix(version, goVersion()+"-") {
				d.faultf(where, "%s, but go.mod says %s", words[0], goVersion())
			}
		case "RUN":
			static = static || strings.Contains(i.args, "CGO_ENABLED=0 go build -trimpath ")
		case "COPY":
			copied = copied || words[len(words)-1] == d.image.program()
			if stage, ok := strings.CutPrefix(words[0], "--from="); ok && !stages[stage] {
				d.faultf(where, "no stage %s", stage)
			}
		}
	}
	if !static {
		d.faultf(where, "the build is not static, or holds paths of the place where it was built")
	}
	if !copied {
		d.faultf(where, "%s is not copied into the image", d.image.program())
	}
}

var goLine = regexp.MustCompile(`(?m)^go ([0-9]+\.[0-9]+)`)

// goVersion is the Go that go.mod asks for, such as 1.26.
func goVersion() string {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	found := goLine.FindSubmatch(text)
	if err != nil || found == nil {
		return "unknown"
	}
	return string(found[1])
}
