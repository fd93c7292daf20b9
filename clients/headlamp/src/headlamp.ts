// Headlamp provides its libraries to plugins as one global. So the bundle contains only the code of this plugin; the package of
// Headlamp is needed for its types.
import type * as Library from "@kinvolk/headlamp-plugin/lib";

declare const pluginLib: typeof Library & {
  React: typeof import("react");
  MuiMaterial: typeof import("@mui/material");
  ReactRouter: typeof import("react-router-dom");
  Crd: typeof import("@kinvolk/headlamp-plugin/lib/Crd");
};

export const { React, MuiMaterial, ReactRouter, ApiProxy, CommonComponents, Crd, K8s, registerRoute, registerSidebarEntry } = pluginLib;
