package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

var manifests = []string{"deploy/kubernetes/coatcheck.yaml", "deploy/kubernetes/orders.yaml", "deploy/kubernetes/gateway.yaml"}

// The manifests, and what the chart makes, agree with themselves and with this program. That
// Kubernetes takes them is looked at by make deploy-check.
func TestManifestsAgreeWithTheProgram(t *testing.T) {
	texts := map[string]string{}
	for _, name := range manifests {
		texts[name] = readRoot(t, name)
	}
	for name, values := range chartValues(t) {
		texts["chart, "+name] = renderChart(t, values)
	}
	for name, text := range texts {
		for _, fault := range manifestFaults(text) {
			t.Errorf("fault of %s: %s", name, fault)
		}
	}
}

// Each row breaks one thing in the service's manifest, or in the example's, and must be found.
func TestBrokenManifestsAreFound(t *testing.T) {
	for _, row := range []struct{ name, file, old, new, fault string }{
		{"not YAML", manifests[0], "spec:", "spec: [", "yaml"},
		{"selector of others", manifests[0], "    matchLabels: {app.kubernetes.io/name: coatcheck}", "    matchLabels: {app.kubernetes.io/name: other}", "selects no pods"},
		{"service of others", manifests[0], "selector: {app.kubernetes.io/name: coatcheck}", "selector: {app.kubernetes.io/name: other}", "Service coatcheck: selects no pods"},
		{"port that is not there", manifests[0], "targetPort: https", "targetPort: http", "no container has port http"},
		{"probe of another port", manifests[0], "{path: /livez, port: https,", "{path: /livez, port: http,", "no port http"},
		{"probe of a page that is not there", manifests[0], "path: /readyz", "path: /ready", "/ready is no probe"},
		{"probe without TLS", manifests[0], "port: https, scheme: HTTPS", "port: https", "asks without TLS"},
		{"unknown setting", manifests[0], "COATCHECK_DRAIN_DELAY", "COATCHECK_DRAIN", "no setting COATCHECK_DRAIN"},
		{"refused value", manifests[0], "value: 5s", "value: five", "COATCHECK_DRAIN_DELAY"},
		{"listens elsewhere", manifests[0], "0.0.0.0:8443", "0.0.0.0:8080", "listens on 8080"},
		{"no keys", manifests[0], "            - {name: COATCHECK_ACCESS, value: /config/keys.yaml}\n", "", "say who may come in"},
		{"no TLS", manifests[0], "            - {name: COATCHECK_TLS_CERT, value: /tls/tls.crt}\n", "", "encrypt it"},
		{"a file that is not mounted", manifests[0], "value: /tls/tls.crt", "value: /certs/tls.crt", "/certs/tls.crt is not mounted"},
		{"a password in the open", manifests[0], "            - {name: COATCHECK_LOG_FORMAT, value: json}", "            - {name: COATCHECK_REDIS, value: \"redis://:secret@redis\"}", "COATCHECK_REDIS is a secret"},
		{"killed before it has stopped", manifests[0], "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 49", "terminationGracePeriodSeconds 49s"},
		{"mount without a volume", manifests[0], "        - name: tls\n", "        - name: certificates\n", "no volume tls"},
		{"root", manifests[0], "runAsNonRoot: true", "runAsNonRoot: false", "may run as root"},
		{"capabilities", manifests[0], "drop: [ALL]", "drop: [NET_RAW]", "keeps capabilities"},
		{"files that can be written", manifests[0], "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "may write to its image"},
		{"image of the day", manifests[0], "image: coatcheck:1.0.0-rc.2", "image: coatcheck:latest", "has no tag that stays"},
		{"another command", manifests[0], "args: [serve]", "args: [server]", "server is no command"},
		{"no limit of memory", manifests[0], "            limits: {memory: 256Mi}\n", "", "no limit of its memory"},
		{"token of the cluster", manifests[0], "      automountServiceAccountToken: false\n", "", "gets a token of the cluster"},
		{"policy of another port", manifests[0], "{protocol: TCP, port: 8443}", "{protocol: TCP, port: 8080}", "NetworkPolicy coatcheck: admits no client"},
		{"flag that is not there", manifests[1], "--identity", "--name", "no flag --name"},
		{"program that was not put there", manifests[1], "args: [install, /coatcheck/coatcheck]", "args: [install, /coatcheck/program]", "/coatcheck/coatcheck is not put there"},
		{"a key in the open", manifests[1], "              valueFrom: {secretKeyRef: {name: orders-coatcheck, key: api-key}}", "              value: cck_secret", "COATCHECK_API_KEY is a secret"},
		{"nowhere to write the window", manifests[1], "            - {name: tmp, mountPath: /tmp} # WORKER_NOT_AFTER_FILE\n", "", "worker run needs a /tmp"},
		{"gateway that is killed", manifests[2], "terminationGracePeriodSeconds: 50", "terminationGracePeriodSeconds: 39", "terminationGracePeriodSeconds 39s"},
		{"route that takes longer", manifests[2], `- match: "POST /payments"`, `- {match: "POST /payments", upstream_timeout_ms: 60000}`, "the longest route, and 5 s: 1m10s"},
		{"routes that are none", manifests[2], "match:", "matches:", "routes: "},
		{"routes of others", manifests[2], "configMap: {name: shop-routes}", "configMap: {name: routes}", "routes: "},
		{"gateway of nothing", manifests[2], "http://127.0.0.1:3000", "", "is no service"},
		{"admin side elsewhere", manifests[2], "containerPort: 8082", "containerPort: 8083", "COATCHECK_ADMIN_LISTEN is no port admin"},
		{"clients at the admin side", manifests[2], "/readyz, port: admin", "/readyz, port: guarded", "readinessProbe does not ask the admin side"},
		{"window that is not let in", manifests[1], `, coatcheck-client: "true"`, "", "is not let in by the policy"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := readRoot(t, row.file)
			broken := strings.Replace(text, row.old, row.new, 1)
			if broken == text {
				t.Fatalf("%s does not hold %q: this row breaks nothing", row.file, row.old)
			}
			if faults := manifestFaults(broken); !slices.ContainsFunc(faults, func(fault string) bool { return strings.Contains(fault, row.fault) }) {
				t.Errorf("no fault %q, but: %q", row.fault, faults)
			}
		})
	}
}

// node is a part of an object. What is not there is an empty one, so that a path can be followed to
// its end.
type node struct{ is any }

func (n node) at(keys ...string) node {
	for _, key := range keys {
		inner, _ := n.is.(map[string]any)
		n = node{inner[key]}
	}
	return n
}

func (n node) list() (all []node) {
	items, _ := n.is.([]any)
	for _, item := range items {
		all = append(all, node{item})
	}
	return all
}

func (n node) text() string {
	if n.is == nil {
		return ""
	}
	return fmt.Sprint(n.is)
}

func (n node) texts() (all []string) {
	for _, item := range n.list() {
		all = append(all, item.text())
	}
	return all
}

func (n node) labels() map[string]string {
	labels := map[string]string{}
	inner, _ := n.is.(map[string]any)
	for name, value := range inner {
		labels[name] = fmt.Sprint(value)
	}
	return labels
}

// manifest is a file of objects, and what is wrong with them.
type manifest struct {
	objects []node
	faults  []string
}

func (m *manifest) faultf(where, format string, args ...any) {
	m.faults = append(m.faults, where+": "+fmt.Sprintf(format, args...))
}

func manifestFaults(text string) []string {
	m := &manifest{}
	decoder, err := yaml.NewLoader(strings.NewReader(text))
	for err == nil {
		var object any
		if err = decoder.Load(&object); err == nil && object != nil {
			m.objects = append(m.objects, node{object})
		}
	}
	if !errors.Is(err, io.EOF) || len(m.objects) == 0 {
		return []string{fmt.Sprintf("yaml: %v", err)}
	}
	for _, object := range m.objects {
		where := object.at("kind").text() + " " + object.at("metadata", "name").text()
		spec := object.at("spec")
		switch object.at("kind").text() {
		case "Deployment", "StatefulSet":
			m.selects(where, spec.at("selector", "matchLabels"))
			m.checkPod(where, spec.at("template", "spec"), spec.at("template", "metadata", "labels").labels())
		case "Service":
			m.selects(where, spec.at("selector"))
			m.checkService(where, spec)
		case "PodDisruptionBudget":
			m.selects(where, spec.at("selector", "matchLabels"))
		case "NetworkPolicy":
			m.selects(where, spec.at("podSelector", "matchLabels"))
			m.checkPolicy(where, spec)
		case "ServiceMonitor":
			m.checkMonitor(where, spec)
		case "PodMonitor":
			m.selects(where, spec.at("selector", "matchLabels"))
			m.checkPodMonitor(where, spec)
		case "HorizontalPodAutoscaler":
			m.checkAutoscaler(where, spec)
		case "ServiceAccount", "ConfigMap", "PrometheusRule":
		default:
			m.faultf(where, "a kind that nothing here looks at")
		}
	}
	return m.faults
}

// pods are the specifications of all pods, with their labels.
func (m *manifest) pods(each func(spec node, labels map[string]string)) {
	for _, object := range m.objects {
		if template := object.at("spec", "template"); template.is != nil {
			each(template.at("spec"), template.at("metadata", "labels").labels())
		}
	}
}

func (m *manifest) selects(where string, selector node) {
	found := false
	m.pods(func(_ node, labels map[string]string) {
		fits := len(selector.labels()) > 0
		for name, value := range selector.labels() {
			fits = fits && labels[name] == value
		}
		found = found || fits
	})
	if !found {
		m.faultf(where, "selects no pods")
	}
}

// hasPort reports whether a container of a pod has a port, by name or number.
func hasPort(pod node, port string) bool {
	return slices.ContainsFunc(pod.at("containers").list(), func(container node) bool {
		return slices.ContainsFunc(container.at("ports").list(), func(p node) bool { return p.at("name").text() == port || p.at("containerPort").text() == port })
	})
}

func (m *manifest) checkService(where string, spec node) {
	for _, port := range spec.at("ports").list() {
		target := port.at("targetPort").text()
		if target == "" {
			target = port.at("port").text()
		}
		found := false
		m.pods(func(pod node, _ map[string]string) { found = found || hasPort(pod, target) })
		if !found {
			m.faultf(where, "no container has port %s", target)
		}
	}
}

func (m *manifest) checkPolicy(where string, spec node) {
	found := false
	for _, rule := range spec.at("ingress").list() {
		for _, port := range rule.at("ports").list() {
			m.pods(func(pod node, _ map[string]string) { found = found || hasPort(pod, port.at("port").text()) })
		}
	}
	if !found {
		m.faultf(where, "admits no client on a port that is listened on")
	}
}

func (m *manifest) checkPod(where string, pod node, labels map[string]string) {
	if pod.at("securityContext", "runAsNonRoot").text() != "true" {
		m.faultf(where, "may run as root")
	}
	if pod.at("securityContext", "seccompProfile", "type").text() != "RuntimeDefault" {
		m.faultf(where, "no seccomp profile")
	}
	if pod.at("automountServiceAccountToken").text() != "false" {
		m.faultf(where, "gets a token of the cluster")
	}
	volumes := map[string]bool{}
	for _, volume := range pod.at("volumes").list() {
		volumes[volume.at("name").text()] = true
	}
	installed := map[string]bool{}
	for _, container := range pod.at("initContainers").list() {
		if args := container.at("args").texts(); len(args) == 2 && args[0] == "install" {
			installed[args[1]] = true
		}
	}
	for _, container := range slices.Concat(pod.at("initContainers").list(), pod.at("containers").list()) {
		name := where + ", " + container.at("name").text()
		m.checkContainer(name, container, volumes)
		m.checkProbes(name, pod, container)
		image, _, _ := strings.Cut(path.Base(container.at("image").text()), ":")
		if command := container.at("command").texts(); len(command) > 0 && path.Base(command[0]) == "coatcheck" {
			if !installed[command[0]] {
				m.faultf(name, "%s is not put there by an init container", command[0])
			}
			if labels["coatcheck-client"] != "true" {
				m.faultf(name, "is not let in by the policy: coatcheck-client")
			}
			m.checkProgram(name, pod, container, command[1:])
		} else if image == "coatcheck" {
			m.checkProgram(name, pod, container, container.at("args").texts())
		}
	}
}

func (m *manifest) checkContainer(name string, container node, volumes map[string]bool) {
	if image, tag, _ := strings.Cut(path.Base(container.at("image").text()), ":"); image == "" || tag == "" || tag == "latest" {
		m.faultf(name, "image %s has no tag that stays", image)
	}
	context := container.at("securityContext")
	if context.at("allowPrivilegeEscalation").text() != "false" || !slices.Contains(context.at("capabilities", "drop").texts(), "ALL") {
		m.faultf(name, "keeps capabilities, or may gain some")
	}
	if context.at("readOnlyRootFilesystem").text() != "true" {
		m.faultf(name, "may write to its image")
	}
	if container.at("resources", "limits", "memory").text() == "" || container.at("resources", "requests", "cpu").text() == "" {
		m.faultf(name, "no limit of its memory, or no share of the processor")
	}
	for _, mount := range container.at("volumeMounts").list() {
		if !volumes[mount.at("name").text()] {
			m.faultf(name, "no volume %s", mount.at("name").text())
		}
	}
}

func (m *manifest) checkProbes(name string, pod, container node) {
	for _, kind := range []string{"startupProbe", "readinessProbe", "livenessProbe"} {
		if ask := container.at(kind, "httpGet"); ask.is != nil && !hasPort(pod, ask.at("port").text()) {
			m.faultf(name, "%s: no port %s", kind, ask.at("port").text())
		}
	}
}

// checkProgram checks a container that runs this program.
func (m *manifest) checkProgram(name string, pod, container node, words []string) {
	if err := checkArguments(words); err != nil {
		m.faultf(name, "%v", err)
		return
	}
	command, _, _ := ownCommand().Find(words[:max(slices.Index(words, "--"), 1)])
	env := map[string]string{}
	for _, variable := range container.at("env").list() {
		called, value := variable.at("name").text(), variable.at("value").text()
		if setting, ours := strings.CutPrefix(called, "COATCHECK_"); ours && !hasFlag(command, strings.ReplaceAll(strings.ToLower(setting), "_", "-")) {
			m.faultf(name, "no setting %s", called)
		}
		if value != "" && (secretName.MatchString(called) && called != "COATCHECK_TLS_KEY" || secretInURL.MatchString(value)) {
			m.faultf(name, "%s is a secret", called)
		}
		if strings.HasPrefix(value, "/") && !mountedIn(container, value) {
			m.faultf(name, "%s: %s is not mounted", called, value)
		}
		env[called] = value
	}
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "gateway":
		m.checkGateway(name, pod, container, env)
	case "serve":
		delete(env, "COATCHECK_CONFIG") // a file, and no setting
		m.checkServe(name, pod, container, env)
	case "worker run":
		if !mountedIn(container, "/tmp/window") {
			m.faultf(name, "worker run needs a /tmp")
		}
	}
}

func mountedIn(container node, file string) bool {
	return slices.ContainsFunc(container.at("volumeMounts").list(), func(mount node) bool {
		return strings.HasPrefix(file, mount.at("mountPath").text()+"/")
	})
}

func (m *manifest) checkServe(name string, pod, container node, env map[string]string) {
	d := &deployment{}
	c := d.configOf(name, env)
	m.faults = append(m.faults, d.faults...)
	for _, missing := range c.Exposed() {
		if !c.Insecure || !strings.HasPrefix(missing, "encrypt it") { // a mesh encrypts
			m.faultf(name, "%s", missing)
		}
	}
	if ports := container.at("ports").list(); len(ports) != 1 || ports[0].at("containerPort").text() != portOf(c.Listen) {
		m.faultf(name, "listens on %s, and says another port", portOf(c.Listen))
	}
	for kind, page := range map[string]string{"startupProbe": "/livez", "readinessProbe": "/readyz", "livenessProbe": "/livez"} {
		ask := container.at(kind, "httpGet")
		if ask.at("path").text() != page {
			m.faultf(name, "%s: %s is no probe of this kind", kind, ask.at("path").text())
		}
		if scheme := ask.at("scheme").text(); env["COATCHECK_TLS_CERT"] != "" && scheme != "HTTPS" {
			m.faultf(name, "%s asks without TLS", kind)
		} else if env["COATCHECK_TLS_CERT"] == "" && scheme == "HTTPS" {
			m.faultf(name, "%s asks with TLS, of a service without", kind)
		}
	}
	grace, err := time.ParseDuration(pod.at("terminationGracePeriodSeconds").text() + "s")
	if least := c.Server.DrainDelay + stopsWithin(c); err != nil || grace < least {
		m.faultf(name, "terminationGracePeriodSeconds %v does not outlast drain delay and stop timeout, and 5 s: %v", grace, least)
	}
}

// withValues are a chart's values with others in place of some.
func withValues(values map[string]any, others map[string]any) map[string]any {
	all := maps.Clone(values)
	for name, value := range others {
		inner, isMap := value.(map[string]any)
		if before, ok := all[name].(map[string]any); ok && isMap {
			value = withValues(before, inner)
		}
		all[name] = value
	}
	return all
}

// asYAML is a value in YAML, without the line's end, as a chart's templates know it.
func asYAML(value any) (string, error) {
	var text bytes.Buffer
	err := yaml.NewEncoder(&text).Encode(value)
	return strings.TrimSuffix(text.String(), "\n"), err
}
