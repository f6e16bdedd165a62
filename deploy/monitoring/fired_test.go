package monitoring_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// firedFile has the text of each alert as its fault fires it, # for a figure: -update writes it.
const firedFile = "testdata/fired.txt"

// figure is one that a person reads at a glance.
const figure = `(-?[0-9]{1,6}|[0-9dhm ]*[0-9]{1,3}(ms|s))`

// Each alert fires when its fault is made on a real program, says what it says in testdata, and
// ends when that is mended. It does so whatever the job is called.
func TestEachAlertIsFiredByItsFault(t *testing.T) {
	rules := map[string]rule{}
	for _, one := range alertRules(t) {
		rules[one.Alert] = one
	}
	var mu sync.Mutex
	fired := map[string][]string{}
	t.Run("faults", func(t *testing.T) {
		for i, fault := range faults {
			t.Run(fmt.Sprint(fault.alert, " ", i), func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				fault.make(s)
				expect.MustEqual(t, "scrapes", len(s.scrapes), 3)
				if fault.alert == "" {
					s.firesNothing(rules)
					return
				}
				texts := s.fires(rules[fault.alert])
				mu.Lock()
				defer mu.Unlock()
				fired[fault.alert] = append(fired[fault.alert], texts...)
			})
		}
		// nobody is scraped, and then somebody is
		t.Run("CoatcheckNotScraped", func(t *testing.T) {
			s := &scene{T: t, scrapes: []map[string]float64{{"coatcheck_build_info{}": 1}, {}, {"coatcheck_build_info{}": 1}}}
			all := slices.DeleteFunc(s.series(map[string]string{"job": "orders"}), func(one series) bool { return one.metric == "up" })
			texts := s.firesFor(rules["CoatcheckNotScraped"], all)
			mu.Lock()
			defer mu.Unlock()
			fired["CoatcheckNotScraped"] = texts
		})
	})
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		texts := slices.Compact(slices.Sorted(slices.Values(fired[name])))
		if len(texts) == 0 {
			t.Errorf("%s: no fault in faults_test.go fires it", name)
		}
		all.WriteString(name + "\n" + strings.Join(texts, ""))
	}
	if *update {
		expect.NoError(t, "WriteFile", os.WriteFile(firedFile, []byte(all.String()), 0o600))
		return
	}
	expect.Equal(t, "texts of the alerts, and "+firedFile, strings.Split(all.String(), "\n"), strings.Split(read(t, firedFile), "\n"))
}

// firesNothing checks that no rule fires for what is no fault.
func (s *scene) firesNothing(rules map[string]rule) {
	s.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	defer func() { _ = engine.Close() }()
	all := memory(s.series(map[string]string{"job": "coatcheck", "instance": "10.0.0.1:8080"}))
	for name, one := range rules {
		if found := heldFor(s.T, engine, all, one, time.Unix(0, 0).Add(faultEnds-scraped)); len(found) > 0 {
			s.Errorf("%s fires without a fault: %v; series:\n%v", name, found, s.changed())
		}
	}
}

// fires checks that a rule fires for a program of either kind of job, and returns what it says.
func (s *scene) fires(of rule) (texts []string) {
	s.Helper()
	for _, job := range []string{"coatcheck", "orders"} {
		target := map[string]string{"job": job, "instance": "10.0.0.1:8080"}
		texts = s.firesFor(of, s.series(target))
		for i, text := range texts {
			texts[i] = strings.ReplaceAll(text, job, "JOB")
		}
	}
	return texts
}

// firesFor checks that a rule fires at the end of a fault, and neither before it nor long after.
func (s *scene) firesFor(of rule, all []series) (texts []string) {
	s.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	defer func() { _ = engine.Close() }()
	begun := time.Unix(0, 0)
	at := func(moment time.Duration) promql.Vector {
		return heldFor(s.T, engine, memory(all), of, begun.Add(moment))
	}
	if found := at(faultBegins - scraped); len(found) > 0 {
		s.Errorf("%s fires before the fault: %v", of.Alert, found)
	}
	if found := at(sceneEnds); len(found) > 0 {
		s.Errorf("%s fires %v after the fault was mended: %v", of.Alert, sceneEnds-faultEnds, found)
	}
	found := at(faultEnds - scraped)
	if len(found) == 0 {
		s.Errorf("%s does not fire; up: %v; series of it:\n%v", of.Alert, s.scrapes[1] != nil, s.changed())
	}
	for _, sample := range found {
		text := ""
		for _, annotation := range []string{"summary", "description"} {
			text += "  " + s.said(of, annotation, sample) + "\n"
		}
		texts = append(texts, text)
	}
	return texts
}

var printed = regexp.MustCompile(`\{\{ (printf "%\.0f" )?\$value( \| [a-zA-Z]+)? \}\}`)

// said is an annotation with # for each figure. A figure that is not round is an error.
func (s *scene) said(of rule, annotation string, sample promql.Sample) string {
	s.Helper()
	expand := func(text string) string {
		data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
		defs := "{{$labels := .Labels}}{{$value := .Value}}"
		found, err := template.NewTemplateExpander(s.Context(), defs+text, of.Alert, data, model.TimeFromUnix(0), nil, nil, nil).Expand()
		expect.NoError(s, "expanding "+text, err)
		return found
	}
	shown, said := expand(printed.ReplaceAllString(of.Annotations[annotation], "#")), expand(of.Annotations[annotation])
	if !regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(shown), "#", figure) + "$").MatchString(said) {
		s.Errorf("%s says %q, want %q with round figures for #", of.Alert, said, shown)
	}
	return shown
}

// changed lists the series that the fault has changed.
func (s *scene) changed() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.scrapes[1])) {
		if value := s.scrapes[1][name]; value != s.scrapes[0][name] && !strings.Contains(name, "_seconds") {
			fmt.Fprintf(&b, "%s: %v, %v, %v\n", name, s.scrapes[0][name], value, s.scrapes[2][name])
		}
	}
	return b.String()
}
