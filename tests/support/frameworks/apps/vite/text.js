export const text = "before";
