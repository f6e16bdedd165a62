// Byoapi does with the client of oapi-codegen what each program here does, and prints what came.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"generated/oapi"
)

func main() {
	ctx := context.Background()
	service, err := oapi.NewClientWithResponses(os.Args[1])
	must(err)

	issued, err := service.IssueTokenWithResponse(ctx, nil, oapi.TokenRequest{})
	must(err)
	token := issued.JSON201.Token
	claim := oapi.ClaimRequest{Fingerprint: "charge-42"}
	claimed, err := service.ClaimTokenWithResponse(ctx, token, nil, claim)
	must(err)
	fmt.Println("claim:", claimed.JSON200.Outcome)
	answer := oapi.Completion{Status: 201}
	completed, err := service.CompleteTokenWithResponse(ctx, token, &oapi.CompleteTokenParams{LeaseToken: *claimed.JSON200.Lease}, answer)
	must(err)
	fmt.Println("complete:", completed.StatusCode())
	claimed, err = service.ClaimTokenWithResponse(ctx, token, nil, claim)
	must(err)
	fmt.Println("claim:", claimed.JSON200.Outcome, claimed.JSON200.Response.Status)

	by := 3
	values, err := service.IncrWithResponse(ctx, "orders", &oapi.IncrParams{By: &by}, oapi.Nothing{})
	must(err)
	fmt.Println("values:", values.JSON200.First, values.JSON200.Value)

	granted, err := service.AcquireLockWithResponse(ctx, "report", nil, oapi.LockRequest{})
	must(err)
	fmt.Println("lock:", granted.StatusCode(), granted.JSON201.Name)
	refused, err := service.AcquireLockWithResponse(ctx, "report", nil, oapi.LockRequest{})
	must(err)
	problem := refused.ApplicationproblemJSON409
	fmt.Println("problem:", problem.Status, problem.Code, problem.Retryable)
	released, err := service.ReleaseLockWithResponse(ctx, "report", &oapi.ReleaseLockParams{LeaseToken: &granted.JSON201.Lease})
	must(err)
	fmt.Println("release:", released.StatusCode())
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
