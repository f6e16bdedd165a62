package snowflake_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/coatcheck/coatcheck/snowflake"
)

func ExampleGenerator() {
	layout := snowflake.MustLayout(snowflake.DefaultLayout)
	// or a lease of package workerlease
	worker, err := snowflake.Static(layout, snowflake.DefaultEpoch, 0, 7)
	if err != nil {
		log.Fatal(err)
	}
	ids, err := snowflake.New(worker, snowflake.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer ids.Stop()

	ctx := context.Background()
	first, err := ids.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	second, err := ids.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first < second, layout.Decode(first, snowflake.DefaultEpoch).Worker)
	// Output: true 7
}

func ExampleLayout_Decode() {
	layout := snowflake.MustLayout(snowflake.DefaultLayout)
	parts := layout.Decode(1169786042799259000, time.UnixMilli(1288834974657))
	fmt.Println(parts.Time.Format(time.RFC3339Nano), parts.Worker, parts.Sequence)
	// Output: 2019-09-06T01:35:00.834Z 39 3448
}

func ExampleFormat_Append() {
	text, err := snowflake.FormatBase62.Append(nil, 3843, snowflake.Style{})
	fmt.Println(string(text), err)
	text, err = snowflake.FormatPadded.Append(nil, 3843, snowflake.Style{Width: 3})
	fmt.Println(string(text), err)
	// Output:
	// zz <nil>
	//  snowflake: out of range: 3843 has more than 3 digits
}
