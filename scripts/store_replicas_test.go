package scripts_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

const replicasKey = "coatcheck:replicas:{store}"

func TestReplicasThatHaveConfirmedAreHeld(t *testing.T) {
	const m, a, b, c = "10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379", "10.0.0.4:6379"
	type step struct {
		id, before, run, own, attached string
		want                           []string
	}
	for name, steps := range map[string][]step{
		"another comes while one is away": {
			{"1", "-", "r1", m, a, []string{a}}, {"1", "-", "r1", m, b, []string{a, b}}, {"1", "-", "r1", m, a + " " + b, []string{a, b}},
		},
		"one is promoted, and is none of them any more": {
			{"1", "-", "r1", m, a + " " + b, []string{a, b}}, {"2", "1", "r2", a, b, []string{b}}, {"2", "1", "r2", a, b + " " + m, []string{b, m}},
			{"3", "2", "r3", b, m, []string{m}},
		},
		"one is promoted while another is away": {
			{"1", "-", "r1", m, a + " " + b, []string{a, b}}, {"2", "1", "r2", a, c, []string{b, c}},
		},
		"the address of the one that was promoted is not known: it is the one that is not attached": {
			{"1", "-", "r1", m, a + " " + b, []string{a, b}}, {"2", "1", "r2", "-", b, []string{b}}, {"2", "1", "r2", "-", c, []string{b, c}},
		},
		"nor is it clear which that is": {
			{"1", "-", "r1", m, a + " " + b, []string{a, b}}, {"2", "1", "r2", "172.17.0.2:6379", c, []string{a, b, c}},
			{"2", "1", "r2", "172.17.0.2:6379", c + " " + b, []string{b, c}},
		},
		"a restart is no promotion": {
			{"1", "-", "r1", m, a, []string{a}}, {"2", "-", "r2", m, "", []string{a}}, {"2", "-", "r2", "-", b, []string{a, b}},
		},
		"a master that renames its history is none either": {
			{"1", "-", "r1", "-", a, []string{a}}, {"2", "1", "r1", "-", "", []string{a}}, {"2", "1", "r1", "-", b, []string{a, b}},
		},
		"a promotion that was not seen keeps all but this server": {
			{"1", "-", "r1", m, a + " " + b, []string{a, b}}, {"3", "2", "r3", b, "", []string{a}},
		},
		"two behind one address": {
			{"1", "-", "r1", m, a + " " + a, []string{a, a}}, {"1", "-", "r1", m, a, []string{a, a}}, {"1", "-", "r1", m, a + " " + b, []string{a, a, b}},
			{"2", "1", "r2", "-", a + " " + b, []string{a, b}},
		},
		"its own address is taken off once": {
			{"1", "-", "r1", m, a + " " + a, []string{a, a}}, {"2", "1", "r2", a, "", []string{a}},
		},
		"there are none": {{"1", "-", "r1", m, "", nil}, {"1", "-", "r1", m, "", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, x *box) {
				for _, s := range steps {
					for range 2 { // a repeat changes nothing
						want(t, x.run(scripts.StoreReplicas, []string{replicasKey}, s.id, s.before, s.run, s.own, s.attached), append([]string{"ok"}, s.want...)...)
					}
				}
			})
		})
	}
}
