package scripts_test

import (
	"math/big"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// decimals are integers around the bounds, other texts among them.
func decimals() *rapid.Generator[string] {
	whole := rapid.Custom(func(t *rapid.T) string {
		edge := rapid.SampledFrom([]string{"0", "9007199254740992", "999999999", "1000000000", "9223372036854775807", "9223372036854775808", "10000000000000000000"}).Draw(t, "edge")
		n, _ := new(big.Int).SetString(edge, 10)
		n.Add(n, big.NewInt(rapid.Int64Range(-3, 3).Draw(t, "beside")))
		if rapid.Bool().Draw(t, "negative") {
			n.Neg(n)
		}
		return n.String()
	})
	return rapid.OneOf(whole, rapid.Custom(func(t *rapid.T) string { return big.NewInt(rapid.Int64().Draw(t, "n")).String() }),
		rapid.StringMatching(`[-+]?[0-9]{0,22}`), rapid.StringMatching(`[-+ 0-9a.e]{0,4}`))
}

func isInt64(text string) bool {
	n, ok := new(big.Int).SetString(text, 10)
	return ok && n.IsInt64() && n.String() == text
}

func TestIntegersInScriptsAreThoseOfMathBig(t *testing.T) {
	part, err := os.ReadFile("lib/int64.lua")
	expect.NoError(t, "os.ReadFile", err)
	const fits, orders = "return is_int(ARGV[1]) and 1 or 0", "return smaller(ARGV[1], ARGV[2]) and 1 or 0"
	each(t, func(t *testing.T, b *box) {
		yes := func(code string, args ...any) bool {
			return b.do(append([]any{"EVAL", string(part) + code, 0}, args...)...) == int64(1)
		}
		rapid.Check(t, func(rt *rapid.T) {
			one, other := decimals().Draw(rt, "one"), decimals().Draw(rt, "other")
			for _, text := range []string{one, other} {
				if is := yes(fits, text); is != isInt64(text) {
					rt.Fatalf("is_int(%q): got %v, want %v", text, is, !is)
				}
			}
			if !isInt64(one) || !isInt64(other) {
				return
			}
			a, _ := new(big.Int).SetString(one, 10)
			z, _ := new(big.Int).SetString(other, 10)
			if is := yes(orders, one, other); is != (a.Cmp(z) < 0) {
				rt.Fatalf("smaller(%s, %s) is %v", one, other, is)
			}
			if yes(orders, one, one) {
				rt.Fatalf("%s is smaller than itself", one)
			}
		})
	})
}
