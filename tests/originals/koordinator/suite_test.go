// The suite of Koordinator, all of it.
package suites

import (
	"flag"
	"os"
	"testing"

	"github.com/koordinator-sh/koordinator/test/e2e"
	"github.com/koordinator-sh/koordinator/test/e2e/framework"
	"github.com/koordinator-sh/koordinator/test/e2e/framework/config"
	"github.com/koordinator-sh/koordinator/test/e2e/framework/testfiles"
	_ "github.com/koordinator-sh/koordinator/test/e2e/quota"
	_ "github.com/koordinator-sh/koordinator/test/e2e/scheduling"
	_ "github.com/koordinator-sh/koordinator/test/e2e/slocontroller"
	manifests "github.com/koordinator-sh/koordinator/test/e2e/testing-manifests"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestE2E(t *testing.T) {
	e2e.RunE2ETests(t)
}
