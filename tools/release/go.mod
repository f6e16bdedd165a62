module github.com/coatcheck/coatcheck/tools/release

go 1.26.0

replace github.com/coatcheck/coatcheck => ../../

require (
	github.com/coatcheck/coatcheck v0.0.0-00010101000000-000000000000
	github.com/google/licensecheck v0.3.1
)

require github.com/google/go-cmp v0.7.0 // indirect
