// Package check has the tools read what is under deploy that it is for: Compose's own loader,
// Helm's engine, and the types of Kubernetes. It is a module of its own, since these are large;
// `make deploy-check` runs it. What agrees with the program itself is checked with every change, in
// cmd/coatcheck/internal/cli.
package check

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// The file loads, which holds it against the Compose specification, and each profile starts what it
// should.
func TestComposeLoadsEveryProfile(t *testing.T) {
	alone := []string{"coatcheck", "redis"}
	for profile, more := range map[string][]string{
		"single":   nil,
		"sentinel": {"coatcheck-sentinel", "member-1", "member-2", "member-3", "sentinel-1", "sentinel-2", "sentinel-3"},
		"cluster":  {"cluster-create", "coatcheck-cluster", "node-1", "node-2", "node-3", "node-4", "node-5", "node-6"},
		"valkey":   {"coatcheck-valkey", "valkey"},
		"observe":  {"grafana", "prometheus"},
	} {
		t.Run(profile, func(t *testing.T) {
			options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithProfiles([]string{profile}), cli.WithName("coatcheck"))
			if err != nil {
				t.Fatalf("the options of Compose: %v", err)
			}
			project, err := options.LoadProject(t.Context())
			if err != nil {
				t.Fatalf("Compose reads docker-compose.yml: %v", err)
			}
			want := append(slices.Clone(alone), more...)
			slices.Sort(want)
			if got := project.ServiceNames(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
				t.Errorf("starts %q, want %q", got, want)
			}
		})
	}
}

// What Helm makes of the chart is what stands beside the values, and Kubernetes has a place for
// every field of it.
func TestHelmMakesWhatStandsBesideTheValues(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "deploy/helm/tested/*.values.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d sets of values, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".values.yaml")
		t.Run(filepath.Base(name), func(t *testing.T) {
			made := objects(t, render(t, file))
			beside := objects(t, read(t, name+".rendered.yaml"))
			if !reflect.DeepEqual(made, beside) {
				t.Errorf("Helm makes\n%+v\nbeside the values stands\n%+v", made, beside)
			}
		})
	}
}

// Helm takes the alerts and the dashboard from the folders in which they are for all.
func TestHelmTakesTheAlertsAndTheDashboard(t *testing.T) {
	text, err := renderErr(map[string]any{"prometheusRule": map[string]any{"enabled": true}, "dashboard": map[string]any{"enabled": true}})
	if err != nil {
		t.Fatalf("Helm renders alerts and dashboard: %v", err)
	}
	found := objects(t, text)
	var want prometheusRule
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(root, "deploy/prometheus/alerts.yml"))), &want.Spec); err != nil {
		t.Fatalf("reading the alerts: %v", err)
	}
	if got := found["PrometheusRule shop-coatcheck"].(*prometheusRule).Spec; len(want.Spec.Groups) == 0 || !reflect.DeepEqual(got, want.Spec) {
		t.Errorf("the chart's rules are\n%+v\nand alerts.yml has\n%+v", got, want.Spec)
	}
	dashboard := found["ConfigMap shop-coatcheck-dashboard"].(*corev1.ConfigMap)
	if dashboard.Data["coatcheck.json"] != read(t, filepath.Join(root, "deploy/grafana/coatcheck.json")) || dashboard.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the chart's dashboard is another one, or has labels %v", dashboard.Labels)
	}
}

// A chart that depends on this one has the gateway among its own containers.
func TestGatewayIsAContainerOfAnotherChart(t *testing.T) {
	parent := &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: "v2", Name: "shop", Version: "1.0.0"},
		Templates: []*chart.File{{Name: "templates/pod.yaml", Data: []byte(`apiVersion: v1
kind: Pod
metadata: {name: shop}
spec:
  containers:
    - {name: shop, image: "example.com/shop:1.0.0"}
    {{- include "coatcheck.gateway" .Subcharts.coatcheck | nindent 4 }}
  volumes:
    {{- include "coatcheck.gateway.volumes" .Subcharts.coatcheck | nindent 4 }}
`)}},
	}
	own, err := loader.Load(filepath.Join(root, "deploy/helm/coatcheck"))
	if err != nil {
		t.Fatalf("Helm reads the chart: %v", err)
	}
	parent.AddDependency(own)
	values := map[string]any{"coatcheck": map[string]any{"gateway": map[string]any{"upstream": "http://127.0.0.1:3000"}}}
	all, err := chartutil.ToRenderValues(parent, values, chartutil.ReleaseOptions{Name: "shop", Namespace: "shop", IsInstall: true}, nil)
	if err != nil {
		t.Fatalf("the values of the chart above: %v", err)
	}
	files, err := engine.Engine{Strict: true}.Render(parent, all)
	if err != nil {
		t.Fatalf("Helm renders the chart above: %v", err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(files["shop/templates/pod.yaml"]), &pod); err != nil {
		t.Fatalf("%v in\n%s", err, files["shop/templates/pod.yaml"])
	}
	if len(pod.Spec.Containers) != 2 || pod.Spec.Containers[1].Name != "gateway" || len(pod.Spec.Volumes) != 2 {
		t.Errorf("containers %+v, volumes %+v; want the gateway beside the service", pod.Spec.Containers, pod.Spec.Volumes)
	}
	if routes := files["shop/charts/coatcheck/templates/gateway.yaml"]; !strings.Contains(routes, "name: "+pod.Spec.Volumes[1].ConfigMap.Name) {
		t.Errorf("the pod mounts %q, which is not made:\n%s", pod.Spec.Volumes[1].ConfigMap.Name, routes)
	}
}

// Kubernetes has a place for every field of the manifests.
func TestKubernetesKnowsEveryFieldOfTheManifests(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "deploy/kubernetes/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if len(objects(t, read(t, file))) == 0 {
			t.Errorf("%s holds nothing", file)
		}
	}
}

// A field that there is not is found, and so are values that the chart's schema refuses.
func TestWhatIsWrongIsFound(t *testing.T) {
	wrong := strings.Replace(read(t, filepath.Join(root, "deploy/kubernetes/coatcheck.yaml")), "terminationGracePeriodSeconds", "terminationGraceSeconds", 1)
	if _, err := decode(wrong); err == nil || !strings.Contains(err.Error(), "terminationGraceSeconds") {
		t.Errorf("a misspelled field: %v", err)
	}
	if _, err := decode("apiVersion: v1\nkind: Podd\n"); err == nil {
		t.Error("an unknown kind was taken")
	}
	if _, err := renderErr(map[string]any{"replica": 3}); err == nil || !strings.Contains(err.Error(), "replica") {
		t.Errorf("a misspelled value: %v", err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	return string(text)
}

func render(t *testing.T, file string) string {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(read(t, file)), &values); err != nil {
		t.Fatalf("the values of %s: %v", file, err)
	}
	text, err := renderErr(values)
	if err != nil {
		t.Fatalf("Helm renders with the values of %s: %v", file, err)
	}
	return text
}

// renderErr has Helm make the chart's objects. It holds the values against the chart's schema.
func renderErr(values map[string]any) (string, error) {
	own, err := loader.Load(filepath.Join(root, "deploy/helm/coatcheck"))
	if err != nil {
		return "", err
	}
	if err := own.Validate(); err != nil {
		return "", err
	}
	all, err := chartutil.ToRenderValues(own, values, chartutil.ReleaseOptions{Name: "shop", Namespace: "coatcheck", IsInstall: true}, nil)
	if err != nil {
		return "", err
	}
	files, err := engine.Engine{Strict: true}.Render(own, all)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for name, content := range files {
		if strings.HasSuffix(name, ".yaml") {
			text.WriteString("---\n" + content + "\n")
		}
	}
	return text.String(), nil
}

// objects reads objects of Kubernetes by kind and name.
func objects(t *testing.T, text string) map[string]any {
	t.Helper()
	found, err := decode(text)
	if err != nil {
		t.Fatalf("reading objects of Kubernetes: %v", err)
	}
	return found
}

// decode refuses fields that a kind does not have.
func decode(text string) (map[string]any, error) {
	found := map[string]any{}
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		var about metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &about); err != nil {
			return nil, err
		}
		if about.Kind == "" {
			continue // comments alone
		}
		object, known := map[string]any{
			"v1 Service": &corev1.Service{}, "v1 ServiceAccount": &corev1.ServiceAccount{}, "apps/v1 Deployment": &appsv1.Deployment{}, "apps/v1 StatefulSet": &appsv1.StatefulSet{},
			"policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "networking.k8s.io/v1 NetworkPolicy": &networkingv1.NetworkPolicy{},
			"autoscaling/v2 HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{}, "v1 ConfigMap": &corev1.ConfigMap{},
			"monitoring.coreos.com/v1 ServiceMonitor": &serviceMonitor{}, "monitoring.coreos.com/v1 PodMonitor": &podMonitor{}, "monitoring.coreos.com/v1 PrometheusRule": &prometheusRule{},
		}[about.APIVersion+" "+about.Kind]
		if !known {
			return nil, &unknownKind{about.APIVersion + " " + about.Kind}
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			return nil, err
		}
		found[about.Kind+" "+about.Name] = object
	}
	return found, nil
}

type unknownKind struct{ kind string }

func (e *unknownKind) Error() string { return "no kind " + e.kind + " that is looked at here" }

// serviceMonitor is what the chart uses of the kind of Prometheus's operator, whose module would
// bring more than all others here.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string `json:"port"`
			Scheme        string `json:"scheme"`
			Path          string `json:"path"`
			Interval      string `json:"interval"`
			Authorization struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
			TLSConfig struct {
				ServerName string `json:"serverName"`
				CA         struct {
					Secret corev1.SecretKeySelector `json:"secret"`
				} `json:"ca"`
			} `json:"tlsConfig"` //nolint:tagliatelle // the operator's name
		} `json:"endpoints"`
	} `json:"spec"`
}

type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"` //nolint:tagliatelle // the operator's name
	} `json:"spec"`
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}
