package number_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/number"
)

// secret is a key that would be seen if it were printed.
var secret = []byte("SECRETSECRETKEYS")

func opaque(t testing.TB, digits int, tweak string) *number.Opaque {
	t.Helper()
	o, err := number.NewOpaque(secret, digits, []byte(tweak))
	if err != nil {
		t.Fatalf("NewOpaque of %d digits: %v", digits, err)
	}
	return o
}

// Every number of six digits has one value, and every value one number.
func TestOpaqueIsAPermutation(t *testing.T) {
	o := opaque(t, 6, "orders")
	seen := make([]bool, o.Max()+1)
	text := make([]byte, 0, 6)
	for value := range o.Max() + 1 {
		var err error
		text, err = o.Append(text[:0], value)
		if err != nil || len(text) != 6 {
			t.Fatalf("writing %d: got %q and error %v, want six digits", value, text, err)
		}
		var n int64
		for _, digit := range text {
			n = n*10 + int64(digit-'0')
		}
		if seen[n] {
			t.Fatalf("%s is the number of two values, one is %d", text, value)
		}
		seen[n] = true
	}
}

func TestOpaqueReadsWhatItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{16, 24, 32}).Draw(t, "key size")
		o, err := number.NewOpaque(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "key"),
			rapid.IntRange(number.MinDigits, number.MaxDigits).Draw(t, "digits"), rapid.SliceOfN(rapid.Byte(), 0, number.MaxTweak).Draw(t, "tweak"))
		if err != nil {
			t.Fatalf("NewOpaque with a key of %d bytes: %v", size, err)
		}
		values := []int64{0, 1, o.Max() - 1, o.Max(), rapid.Int64Range(0, o.Max()).Draw(t, "n")}
		for _, value := range values {
			text, err := o.Encode(value)
			if err != nil || len(text) != o.Digits() {
				t.Fatalf("writing %d: got %q and error %v, want %d digits", value, text, err, o.Digits())
			}
			if back, err := o.Decode(text); back != value || err != nil {
				t.Fatalf("%d: %q is %d, %v", value, text, back, err)
			}
		}
		// And the other way round: every text is the number of a value.
		text := fmt.Sprintf("%0*d", o.Digits(), values[4])
		value, err := o.Decode(text)
		if err != nil || value < 0 || value > o.Max() {
			t.Fatalf("reading %q: got %d and error %v, want a value up to %d", text, value, err, o.Max())
		}
		if again, err := o.Encode(value); again != text || err != nil {
			t.Fatalf("%q is %d, and that is %q, %v", text, value, again, err)
		}
	})
}

// Each key, width and tweak has a permutation of its own: texts of one decode to something else
// with the other.
func TestOpaqueDiffersByKeyTweakAndDigits(t *testing.T) {
	const values = 1000
	other := bytes.Clone(secret)
	other[15]++
	otherKey, err := number.NewOpaque(other, 9, []byte("orders"))
	expect.MustEqual(t, "the error of NewOpaque with another key", err, nil)
	reference := opaque(t, 9, "orders")
	for name, o := range map[string]*number.Opaque{
		"key": otherKey, "tweak": opaque(t, 9, "invoices"), "no tweak": opaque(t, 9, ""), "longer tweak": opaque(t, 9, "orders\x00"), "digits": opaque(t, 10, "orders"),
	} {
		same := 0
		for value := range int64(values) {
			a, errA := reference.Encode(value)
			b, errB := o.Encode(value)
			if errA != nil || errB != nil {
				t.Fatalf("writing %d: %v, with another %s %v", value, errA, name, errB)
			}
			if a == strings.TrimLeft(b, "0") || a == b {
				same++
			}
		}
		if same > 0 {
			t.Errorf("another %s: %d numbers of %d are the same", name, same, values)
		}
	}
}

func TestOpaqueRefusesWhatDoesNotFit(t *testing.T) {
	for digits, most := range map[int]int64{0: 999_999_999_999_999_999, 6: 999_999, 17: 99_999_999_999_999_999, 18: 999_999_999_999_999_999} {
		o := opaque(t, digits, "")
		if o.Max() != most || digits > 0 && o.Digits() != digits {
			t.Errorf("%d digits: %d, %d", digits, o.Max(), o.Digits())
		}
		for _, value := range []int64{most + 1, math.MaxInt64, -1, math.MinInt64} {
			want := number.ErrWidth
			if value < 0 {
				want = number.ErrNegative
			}
			text, err := o.Encode(value)
			var wide *number.TooWideError
			if !errors.Is(err, want) || text != "" || errors.As(err, &wide) && wide.Max != most {
				t.Errorf("%d in %d digits: %q, %v", value, digits, text, err)
			}
			// The value is what the number hides.
			if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), fmt.Sprint(value)) {
				t.Errorf("%d in %d digits: the error contains it: %#v", value, digits, err)
			}
			if got, err := o.Append([]byte("before"), value); err == nil || string(got) != "before" {
				t.Errorf("%d in %d digits: %q, %v", value, digits, got, err)
			}
		}
	}
	o := opaque(t, 8, "")
	for _, text := range []string{"", "1234567", "123456789", "1234567x", "1234567:", "1234567/", "-1234567", "+1234567", " 1234567", "12_34567", "1234567\n", "１２３４５６７８", "12345678901234567890123"} {
		if value, err := o.Decode(text); !errors.Is(err, number.ErrSyntax) || value != 0 || !strings.Contains(err.Error(), "8 digits") {
			t.Errorf("reading %q: got %d and error %v, want %v that names 8 digits", text, value, err, number.ErrSyntax)
		}
	}
}

func TestNewOpaqueRefusesWithoutSayingTheKey(t *testing.T) {
	for _, row := range []struct {
		key    []byte
		digits int
		tweak  int
		want   string
	}{
		{nil, 8, 0, "a key of 0 bytes: 16, 24 or 32"},
		{secret[:15], 8, 0, "a key of 15 bytes"},
		{append(bytes.Clone(secret), 'X'), 8, 0, "a key of 17 bytes"},
		{secret, 5, 0, "opaque numbers of 5 digits: 6 to 18"},
		{secret, 19, 0, "opaque numbers of 19 digits"},
		{secret, -1, 0, "opaque numbers of -1 digits"},
		{secret, 8, number.MaxTweak + 1, "a tweak of 1025 bytes: 1024 at most"},
	} {
		o, err := number.NewOpaque(row.key, row.digits, make([]byte, row.tweak))
		if err == nil || o != nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%d bytes, %d digits: %v, %v", len(row.key), row.digits, o, err)
		}
	}
}

// The key is in nothing that prints, logs or encodes, and neither is what was made of it.
func TestOpaqueIsPrintedWithoutItsKey(t *testing.T) {
	o := opaque(t, 8, "orders")
	var printed bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%t", "%p", "%T", "%c", "%20v"} {
		fmt.Fprintf(&printed, verb+"\n"+verb+"\n"+verb+"\n"+verb+"\n", o, *o, []any{struct{ O number.Opaque }{*o}}, struct{ unexported number.Opaque }{*o})
	}
	text := slog.New(slog.NewTextHandler(&printed, nil))
	text.Info("text", "opaque", o, "value", *o, "group", slog.GroupValue(slog.Any("opaque", o)))
	slog.New(slog.NewJSONHandler(&printed, nil)).Info("json", "opaque", o, "value", *o, "in", struct{ O *number.Opaque }{o})
	encoded, err := json.Marshal([]any{o, *o})
	expect.MustEqual(t, "the error of writing JSON", err, nil)
	printed.Write(encoded)
	printed.WriteString(o.GoString() + o.String() + o.LogValue().String())
	for name, form := range map[string]string{
		"text": string(secret[:6]), "hex": hex.EncodeToString(secret[:6]), "HEX": strings.ToUpper(hex.EncodeToString(secret[:6])),
		"base64": base64.StdEncoding.EncodeToString(secret[:6]), "numbers": "83 69 67 82 69 84",
	} {
		if strings.Contains(printed.String(), form) {
			t.Errorf("there is %s in %s", name, printed.String())
		}
	}
	if n := strings.Count(printed.String(), "opaque numbers of 8 digits"); n < 40 {
		t.Errorf("only %d times in %s", n, printed.String())
	}
}

func TestOpaqueKeepsNeitherKeyNorTweak(t *testing.T) {
	key, tweak := bytes.Clone(secret), []byte("orders of a very long name, over more than one block")
	o, err := number.NewOpaque(key, 8, tweak)
	expect.MustEqual(t, "the error of NewOpaque", err, nil)
	want, err := o.Encode(42)
	expect.MustEqual(t, "the error of writing 42", err, nil)
	clear(key)
	clear(tweak)
	got, err := o.Encode(42)
	expect.Error(t, "writing 42 when key and tweak are gone", err, nil)
	expect.Equal(t, "42 when key and tweak are gone", got, want)
}

func TestOpaqueIsUsedByManyAtOnce(t *testing.T) {
	o := opaque(t, 0, "orders")
	want := make([]string, 500)
	for value := range want {
		want[value], _ = o.Encode(int64(value))
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for value := range want {
				text, err := o.Encode(int64(value))
				if text != want[value] || err != nil {
					t.Errorf("%d: %s, %v, want %s", value, text, err, want[value])
				}
				if back, err := o.Decode(text); back != int64(value) || err != nil {
					t.Errorf("%s: %d, %v, want %d", text, back, err, value)
				}
			}
		})
	}
	all.Wait()
}

func TestAppendOfOpaqueNumbersAllocatesNothing(t *testing.T) {
	o := opaque(t, 0, "orders")
	buffer := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(1000, func() { buffer, _ = o.Append(buffer[:0], 42) }); n != 0 {
		t.Errorf("Append: %v allocations", n)
	}
	text := string(buffer)
	if n := testing.AllocsPerRun(1000, func() { _, _ = o.Decode(text) }); n != 0 {
		t.Errorf("Decode: %v allocations", n)
	}
}

// What is as many digits is a number, and nothing else.
func FuzzOpaqueDecode(f *testing.F) {
	for _, seed := range []string{"", "0", "000000", "999999", "12345678", "-1234567", "1234567x", "000000000000000000", "999999999999999999", "9223372036854775807"} {
		f.Add(seed)
	}
	opaques := []*number.Opaque{opaque(f, 6, ""), opaque(f, 8, "orders"), opaque(f, 13, "a"), opaque(f, 18, strings.Repeat("long ", 20))}
	f.Fuzz(func(t *testing.T, text string) {
		for _, o := range opaques {
			value, err := o.Decode(text)
			if isDigits := strings.Trim(text, "0123456789") == "" && len(text) == o.Digits(); isDigits != (err == nil) {
				t.Fatalf("%v: %q is %d, %v", o, text, value, err)
			}
			if err != nil {
				if !errors.Is(err, number.ErrSyntax) || value != 0 {
					t.Fatalf("%v: %q is %d, %v", o, text, value, err)
				}
				continue
			}
			if again, err := o.Encode(value); again != text || err != nil {
				t.Fatalf("%v: %q is %d, and that is %q, %v", o, text, value, again, err)
			}
		}
	})
}
