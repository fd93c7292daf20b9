// Package api has the tests of the API types that need an API server, the agent or the operator. The module of the API
// depends on apimachinery only, so they are here.
package api
