package number_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/number"
	"github.com/coatcheck/coatcheck/redisstore"
)

// An order number of each day, from a counter that begins anew with it. The clock is read once, for
// the key and the template.
func Example() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	orders, err := number.ParseCalendarKey("orders:{yyyyMMdd}", berlin)
	if err != nil {
		log.Fatal(err)
	}
	template := number.MustTemplate("ORD-{yyyyMMdd}-{n:6}")
	if err := template.Fits(orders); err != nil {
		log.Fatal(err) // it would repeat numbers
	}

	now := time.Date(2026, 11, 20, 23, 15, 0, 0, time.UTC)
	name, period, err := orders.At(now)
	if err != nil {
		log.Fatal(err)
	}
	value := int64(42) // what INCR of the counter with that name answers
	text, err := template.Format(value, now.In(berlin))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(name, "until", period.Until)
	fmt.Println(text)
	// Output:
	// orders:20261121 until 2026-11-22 00:00:00 +0100 CET
	// ORD-20261121-000042
}

// Order numbers that begin at 1 each day, for all processes on one Redis.
func Example_orders() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:") // redis://… in production
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	counters := counter.New(store, counter.Config{})
	defer counters.Close()
	orders, _ := number.ParseCalendarKey("orders:{yyyyMMdd}", time.UTC)
	template := number.MustTemplate("ORD-{yyyyMMdd}-{n:6}")

	now := time.Date(2026, 11, 20, 23, 15, 0, 0, time.UTC) // time.Now().UTC(), once for both
	key, _, err := orders.At(now)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		value, err := counters.Incr(ctx, key)
		if err != nil {
			log.Fatal(err) // no number: it may be a gap, and is never one that comes twice
		}
		fmt.Println(template.Format(value, now))
	}
	// Output:
	// ORD-20261120-000001 <nil>
	// ORD-20261120-000002 <nil>
}

func ExampleParseTemplate() {
	_, err := number.ParseTemplate("ORD-{yyyyMMhh}-{n:6}")
	fmt.Println(err)
	// Output: number: not a template: position 12: "hh" is no part of a date; write HH
}

func ExampleTemplate_Format() {
	template := number.MustTemplate("{YYYY-Www}/{n:3}")
	lastDay := time.Date(2026, 12, 31, 12, 0, 0, 0, time.UTC)
	text, err := template.Format(7, lastDay)
	fmt.Println(text, err)
	text, err = template.Format(1000, lastDay)
	fmt.Println(text, err)
	// Output:
	// 2026-W53/007 <nil>
	//  number: too large: 999 at most
}

// A day on which the clocks are set back.
func ExampleTemplate_Period() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	period, err := number.MustTemplate("{yyyyMMdd}-{n}").Period(time.Date(2026, 10, 25, 12, 0, 0, 0, berlin), berlin)
	fmt.Println(period.Label, period.Until.Sub(period.From), err)
	// Output: 20261025 25h0m0s <nil>
}

func ExampleTemplate_Fits() {
	orders, err := number.ParseCalendarKey("orders:{yyyyMMdd}", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(number.MustTemplate("ORD-{yyyy}-{n:6}").Fits(orders))
	// Output: number: the template does not tell the key's periods apart: orders:{yyyyMMdd} counts anew each day, and {yyyy} can be the same in two of them; write {yyyyMMdd}
}

func ExampleNewOpaque() {
	key := []byte("32 random bytes, and not a text!") // from where secrets are kept
	orders, err := number.NewOpaque(key, 10, []byte("orders"))
	if err != nil {
		log.Fatal(err)
	}
	for _, value := range []int64{1, 2, 3} {
		text, err := orders.Encode(value)
		if err != nil {
			log.Fatal(err)
		}
		back, err := orders.Decode(text)
		fmt.Println(value, text, back, err)
	}
	fmt.Println(orders)
	// Output:
	// 1 5659181932 1 <nil>
	// 2 5486962514 2 <nil>
	// 3 3908202632 3 <nil>
	// opaque numbers of 10 digits
}
