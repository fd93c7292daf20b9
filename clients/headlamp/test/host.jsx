// A page that shows the plugin with the parts of Headlamp that its npm package contains: the loader of plugins, the sidebar, the
// routes, the theme, the components, and the code for requests and watches. The shell around them isn't in that package.
import "@kinvolk/headlamp-plugin/lib/plugin/index";

import { _api } from "@iconify/react";
import CssBaseline from "@mui/material/CssBaseline";
import { ThemeProvider } from "@mui/material/styles";
import { QueryClientProvider } from "@tanstack/react-query";
import { SnackbarProvider } from "notistack";
import React, { Suspense } from "react";
import { createRoot } from "react-dom/client";
import { Provider } from "react-redux";
import { BrowserRouter } from "react-router-dom";

import RouteSwitcher from "@kinvolk/headlamp-plugin/lib/components/App/RouteSwitcher";
import { useCurrentAppTheme } from "@kinvolk/headlamp-plugin/lib/components/App/themeSlice";
import Sidebar from "@kinvolk/headlamp-plugin/lib/components/Sidebar/index";
import { queryClient } from "@kinvolk/headlamp-plugin/lib/lib/queryClient";
import { setStore } from "@kinvolk/headlamp-plugin/lib/lib/router/createRouteURL";
import { createMuiTheme } from "@kinvolk/headlamp-plugin/lib/lib/themes";
import Plugins from "@kinvolk/headlamp-plugin/lib/plugin/Plugins";
import { setConfig } from "@kinvolk/headlamp-plugin/lib/redux/configSlice";
import { useTypedSelector } from "@kinvolk/headlamp-plugin/lib/redux/hooks";
import store from "@kinvolk/headlamp-plugin/lib/redux/stores/store";

_api.setFetch(async () => new Response("{}")); // no icons from the internet

setStore(store);
store.dispatch(setConfig({ clusters: { main: { name: "main", auth_type: "", useToken: false } } }));

function Page() {
  const theme = createMuiTheme(useCurrentAppTheme());
  const loaded = useTypedSelector(state => state.plugins.loaded);
  return (
    <ThemeProvider theme={theme}>
      <CssBaseline />
      <SnackbarProvider>
        <Plugins />
        <div style={{ display: "grid", gridTemplateColumns: "min-content 1fr", height: "100vh" }}>
          <Sidebar />
          <main style={{ overflow: "auto", padding: "0 24px" }}>{loaded && <RouteSwitcher requiresToken={() => false} />}</main>
        </div>
      </SnackbarProvider>
    </ThemeProvider>
  );
}

createRoot(document.getElementById("root")).render(
  <Provider store={store}>
    <QueryClientProvider client={queryClient}>
      <Suspense fallback={null}>
        <BrowserRouter>
          <Page />
        </BrowserRouter>
      </Suspense>
    </QueryClientProvider>
  </Provider>
);
